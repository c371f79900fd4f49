"""Moves a point to where a score becomes positive: along its slope, and by trying simple values.

The score says how far a branch's condition is from the requested side. Slopes are taken by differences, so
any condition that can be evaluated will do. Every step is a batch of points, of which the best is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

_STEP = 1e-6  # of a component's spread, for slopes
_LARGE_STEP = 0.03  # for a score with stairs, or where the small step moves nothing
_INWARD = 0.05
_FLAT = 1e-9  # of a slope's square: a direction that leads nowhere
_COLUMNS = 48  # components whose slopes are taken at once
_MOST_ALONE = 4  # how many components take a simple value one at a time
# Parts of the step that would reach zero if the score were straight; a little more than the whole step
# reaches the inside of a narrow band.
_PARTS = np.array([0.1, 0.5, 0.9, 1.0, *(1 + 10.0 ** -np.arange(1, 13, 1.0)), 1.5, 2.0, 4.0, 16.0])


@dataclass
class Steering:
    """The search for one score.

    Attributes:
        evaluate: points (B, n) to scores (B, 1 + G): the score, and how far each point is inside each of G
            guards, the conditions without which there is no score. It also notes whatever else it sees there.
        inside: moves points to where they are allowed.
        spreads: (n,) the usual distance between values of a component.
        values: numbers that components may be compared with.
        generator: of random numbers.
    """

    evaluate: Callable[[Array], Array]
    inside: Callable[[Array], Array]
    spreads: Array
    values: Sequence[float]
    generator: np.random.Generator
    best: Array = field(default_factory=lambda: np.zeros(0))
    score: float = -np.inf
    guards: Array = field(default_factory=lambda: np.zeros(0))

    def start(self, points: Array, scores: Array) -> None:
        """Begin at the best of some points, whose scores are as `evaluate` gives them."""
        best = int(np.argmax(scores[:, 0]))
        self.best, self.score, self.guards = points[best], float(scores[best, 0]), scores[best, 1:]

    def round(self, *, thorough: bool = False) -> bool:
        """Take slopes at the best point and try steps along them; return whether a better point was found.

        Args:
            thorough: also try simple values and jumps, as where there is no slope.
        """
        columns = self._choose_columns()
        rows = self._propose_steps(self._slopes(columns, _STEP), columns)
        if not rows:
            rows = self._propose_steps(self._slopes(columns, _LARGE_STEP), columns)
        if thorough or not rows:
            rows += self._propose_simple_values(columns) + self._propose_jumps()
        return self._try(np.array(rows))

    def jump(self) -> bool:
        """Try simple values and jumps alone; return whether a better point was found."""
        return self._try(
            np.array(self._propose_simple_values(self._choose_columns()) + self._propose_jumps())
        )

    def _try(self, points: Array) -> bool:
        points = self.inside(points)
        scores = self.evaluate(points)
        if not scores[:, 0].max() > self.score:
            return False
        self.start(points, scores)
        return True

    def _choose_columns(self) -> Array:
        count = len(self.best)
        return np.arange(count) if count <= _COLUMNS else self.generator.permutation(count)[:_COLUMNS]

    def _slopes(self, columns: Array, step: float) -> Array:
        """Return slopes along some components, in units of their spreads; 0 where there are none.

        Returns:
            (1 + G, components): the score's, and the guards'.
        """
        points = np.repeat(self.best[None], len(columns), axis=0)
        rows = np.arange(len(columns))
        moves = step * self.spreads[columns]
        # Stay away from a border, which would cut a step off.
        ahead = self.inside(self.best[None] + step * self.spreads)[0][columns] - self.best[columns]
        moves = np.where(np.abs(ahead) > 0.5 * moves, moves, -moves)
        points[rows, columns] += moves
        real = points[rows, columns] - self.best[columns]
        with np.errstate(all="ignore"):
            here = np.concatenate([[self.score], self.guards])
            slopes = (self.evaluate(points) - here).T / real * self.spreads[columns]
        return np.where(np.isfinite(slopes), slopes, 0.0)

    def _propose_steps(self, every: Array, columns: Array) -> list[Array]:
        """Return points along the slopes: all components, the signs alone, and the steepest alone.

        Where there are guards, also along the part of the score's slope that doesn't change them.
        """
        slopes = every[0]
        if not slopes.any() or not np.isfinite(self.score):
            return []
        rows = []
        # Where the score isn't negative any more, go further in by a part of the components' spreads.
        missing = -self.score if self.score < 0 else _INWARD * float(np.max(np.abs(slopes)))
        alone = np.where(np.arange(len(slopes)) == np.argmax(np.abs(slopes)), slopes, 0.0)
        directions = [slopes, np.sign(slopes), alone]
        if len(every) > 1:
            needed, *_ = np.linalg.lstsq(every[1:].T, slopes, rcond=None)
            directions.append(slopes - every[1:].T @ needed)
        for direction in directions:
            steepness = float(direction @ slopes)
            if steepness < _FLAT * float(slopes @ slopes):
                continue
            move = np.zeros(len(self.best))
            move[columns] = direction * missing / steepness * self.spreads[columns]
            rows += list(self.best + _PARTS[:, None] * move)
            if len(slopes) == 1:
                break
        # Each violated condition may need its own component's whole step.
        with np.errstate(all="ignore"):
            move = np.zeros(len(self.best))
            own = np.where(slopes != 0, missing / slopes, 0.0)
            move[columns] = np.clip(own, -1e3, 1e3) * self.spreads[columns]
        rows += list(self.best + np.array([0.5, 1.0, 1.001, 2.0])[:, None] * move)
        return rows

    def _propose_simple_values(self, columns: Array) -> list[Array]:
        """Return points at which one component, or each one, has a value that something is compared with."""
        rows = []
        chosen = columns
        if len(columns) > _MOST_ALONE:
            chosen = self.generator.permutation(columns)[:_MOST_ALONE]
        for value in self.values[:6]:
            near = value + np.array([0.0, 1e-6, -1e-6, 1e-3, -1e-3]) * (abs(value) or 1.0)
            rows += [np.full_like(self.best, level) for level in near[:3]]
            for column in chosen:
                moved = np.repeat(self.best[None], len(near), axis=0)
                moved[:, column] = near
                rows += list(moved)
        if len(self.best) > 1:  # ties
            for column in chosen:
                moved = self.best.copy()
                moved[column] = self.best[self.generator.integers(len(self.best))]
                rows.append(moved)
        return rows

    def _propose_jumps(self) -> list[Array]:
        """Return points at some distance, with a few components changed: for scores without a slope."""
        rows = []
        for size in (0.01, 0.1, 0.3, 1.0, 3.0, 10.0):
            for some in (0.1, 1.0):
                chosen = self.generator.random(len(self.best)) < max(some, 1.5 / len(self.best))
                move = self.generator.standard_normal(len(self.best)) * size * self.spreads
                rows.append(self.best + np.where(chosen, move, 0.0))
        return rows
