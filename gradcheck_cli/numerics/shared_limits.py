"""Numbers that several rules share, each with what it stands for: one place for one derivation."""

from __future__ import annotations

# How many steps, risers or points in a row must show the same before it counts as a pattern: two are alike by
# chance.
PATTERN = 3
# A value is known if its error is at most this part of it: then its sign and its order of magnitude are
# certain. What is known less well scales no tolerance, and contradicts nothing.
KNOWN = 0.1
# An error is a mistake, and two slopes are two, only if they differ by this many times what either may be off
# by. (empirical)
MARGIN = 5.0
# What is at least this part of the largest is of its order of magnitude; what is less is of another kind.
OWN_ORDER = 0.1
# A round of a search that leaves nine tenths of what is open brings nothing new.
NO_PROGRESS = 0.9
# What agrees to a thousandth has three digits in common: rounding and noise take no more of what counts.
DIGITS = 1e-3

# Roundings, in units of u |f|. Half an ulp is at most one. It is doubled for a value, since the last
# operation is seldom the only one that rounds.
OF_A_VALUE = 2.0
# What a few operations on a value, or on a row's terms, lose: eight values' worth.
OF_SOME_OPERATIONS = 16.0
# What layers of operations, or a long sum, leave of a value that should be constant: up to 70 were seen, in
# EfficientNetB0 with its 240 layers. Noise above this isn't that of the last operations.
OF_MANY_OPERATIONS = 2.0**8

# Random directions, or upstreams, along which functions are compared: what cancels in one shows in the other.
DIRECTIONS = 2
# A bound on errors whose spread a handful of runs, or of differences, shows. Values err by more than one
# standard deviation: uniform rounding by a factor of 1.7, and the estimate itself by another factor of two.
BOUND_PER_SIGMA = 4.0
# Runs that differ in their rounding alone. The largest of eight differences is at least half a sigma 999
# times in 1,000, so that 8 times it bounds 4 sigma. Twice that, for what no such run changes: the rounding of
# residuals, or sums that cancel less.
RUNS = 8
BOUND_BY_RUNS = 16.0

# Floats that are held at once, in one array: 64 MB, so that several fit a laptop.
FLOATS_AT_ONCE = 2**23
# With no more rows or elements than this, each may be looked at by itself; of more, so many stand for all.
FEW = 8
# Up to this many points, or rows, are taken without asking what they cost: a second if each takes 4 ms.
CHEAP = 2**8
