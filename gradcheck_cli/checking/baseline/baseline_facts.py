"""What a baseline records of each pair besides its verdict, taken at the first sample point."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gradcheck_cli.checking.baseline.fingerprint import fingerprints
from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.gate import Tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.pairs.pair import Pair, PairKey
    from gradcheck_cli.gate import Fingerprint
    from gradcheck_cli.results import PairResult
    from gradcheck_cli.spec.case import Case


@dataclass
class BaselineFacts:
    """Fingerprints and tolerances by pair; filled once."""

    fingerprints: dict[PairKey, Fingerprint] = field(default_factory=dict)
    tolerances: dict[PairKey, Tolerance] = field(default_factory=dict)

    def keep(self, case: Case, formula: Operation, pairs: Mapping[PairKey, Pair]) -> None:
        """Record fingerprints and tolerances, unless an earlier sample point did."""
        if self.tolerances:
            return
        for key, pair in pairs.items():
            rule = pair.tolerance
            self.tolerances[key] = Tolerance(rule.rtol, rule.ratol, rule.atol)
        if case.remembered:
            self.fingerprints = fingerprints(
                formula,
                list(pairs),
                domains={input_index: tensor.domain for input_index, tensor in enumerate(case.tensors)},
                nondeterminism=case.nondeterminism,
            )

    def added_to(self, op: Operation, results: Sequence[PairResult]) -> tuple[PairResult, ...]:
        """Return the results with their recorded fingerprints and tolerances."""
        by_label = {label_of(op, pair): pair for pair in self.tolerances}
        return tuple(
            result
            if (pair := by_label.get(result.label)) is None
            else replace(result, fingerprint=self.fingerprints.get(pair), tolerance=self.tolerances.get(pair))
            for result in results
        )
