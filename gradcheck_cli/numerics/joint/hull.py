"""How far a convex hull lies from zero, for many hulls at once.

References:
    B. F. Mitchell, V. F. Demyanov, V. N. Malozemov, Finding the point of a polyhedron closest to the origin,
    SIAM J. Control 12 (1974), 19-26 (`nearest_to_zero`).
    C. L. Lawson, R. J. Hanson, Solving Least Squares Problems (1974), algorithm NNLS (`_solve`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gradcheck_cli.numerics.differences import Mask
    from gradcheck_cli.numerics.precision import Float

# Beyond this many times what is allowed a gradient is wrong, as a single element is
# (`verdict.MISMATCH_MARGIN`).
MARGIN = 5.0
# The search in a hull ends when it can move the nearest point by no more than this part.
SETTLED = 1e-6
MOST_STEPS = 200  # hulls that are still open then are solved one by one
# A few roundings: shares and gains below it are zero.
EXACT = 2.0**-48


def nearest_to_zero(points: Float, is_there: Mask) -> tuple[Float, Float]:
    """Find the point of each hull that is nearest to zero, until it is clear on which side of 1 it lies.

    Args:
        points: (R, K, q) the hulls' points, in units of what is allowed along each direction.
        is_there: (R, K) which of them count; at least one of each hull.

    Returns:
        The points, (R, q); and a lower bound (R,) on the distance from zero, in the largest component, of
        every point of the hull: at most 0 where zero may be inside.
    """
    best, bound = np.zeros((len(points), points.shape[2])), np.zeros(len(points))
    todo = np.arange(len(points))
    hulls, there = points, is_there
    start = np.argmin(np.where(there, np.square(hulls).sum(axis=2), np.inf), axis=1)
    share = np.zeros(hulls.shape[:2])
    share[todo, start] = 1.0
    at = hulls[todo, start]
    for _step in range(MOST_STEPS):
        row = np.arange(len(todo))
        level = np.einsum("rkq,rq->rk", hulls, at)
        ahead = np.argmin(np.where(there, level, np.inf), axis=1)
        behind = np.argmax(np.where(share > 0, level, -np.inf), axis=1)
        norm, total = np.square(at).sum(axis=1), np.abs(at).sum(axis=1)
        least = level[row, ahead]
        with np.errstate(all="ignore"):
            lower = np.where(total > 0, least / total, 0.0)
        best[todo], bound[todo] = at, np.maximum(bound[todo], lower)
        is_known = (np.abs(at).max(axis=1) <= 1) | (lower > MARGIN) | (norm - least <= SETTLED * norm)
        if is_known.all():
            return best, bound
        step = hulls[row, ahead] - hulls[row, behind]
        with np.errstate(all="ignore"):
            wanted = (level[row, behind] - least) / np.square(step).sum(axis=1)
        wanted = np.clip(np.nan_to_num(wanted), 0.0, share[row, behind])
        at = at + wanted[:, None] * step
        share[row, behind] -= wanted
        share[row, ahead] += wanted
        keep = ~is_known
        todo, hulls, there, share, at = todo[keep], hulls[keep], there[keep], share[keep], at[keep]
    for index, hull, counts in zip(todo, hulls, there, strict=True):
        best[index] = nearest = _solve(hull[counts])
        total = float(np.abs(nearest).sum())
        if total > 0:
            bound[index] = max(bound[index], float(np.min(hull[counts] @ nearest)) / total)
    return best, bound


def _solve(hull: Float) -> Float:
    """Find the point of one hull, (K, q), that is nearest to zero: least squares with non-negative shares.

    The algorithm is NNLS of Lawson and Hanson, Solving Least Squares Problems (1974). That the shares add up
    to 1 is one more equation; scaling the result makes it exact.
    """
    unit = float(np.abs(hull).max())
    matrix = np.concatenate([hull.T / unit, np.ones((1, len(hull)))])
    wanted = np.zeros(len(matrix))
    wanted[-1] = 1.0
    share, is_used = np.zeros(len(hull)), np.zeros(len(hull), dtype=bool)
    for _ in range(3 * len(hull)):
        gain = np.where(is_used, -np.inf, matrix.T @ (wanted - matrix @ share))
        if not gain.max() > EXACT:
            break
        is_used[np.argmax(gain)] = True
        while is_used.any():
            tried = np.zeros(len(hull))
            tried[is_used] = np.linalg.lstsq(matrix[:, is_used], wanted, rcond=None)[0]
            falls = is_used & (tried <= 0)
            if not falls.any():
                share = tried
                break
            step = float(np.min(share[falls] / (share[falls] - tried[falls])))
            share += step * (tried - share)
            is_used &= share > EXACT
            share[~is_used] = 0.0
    return np.asarray(share @ hull / share.sum())
