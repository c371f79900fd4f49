"""A judged pair, element by element: the run's numbers and verdicts, for display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.checking.ops.packing import Float, pack
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.results import CheckResult, PairResult


@dataclass(frozen=True)
class Judged:
    """The verdicts on a pair at each sample point."""

    output: TensorInfo  # the output that is differentiated
    input_info: TensorInfo  # the input that it is differentiated by
    samples: tuple[PairSample, ...]  # one for each point that was judged

    @property
    def index_to_show(self) -> int:
        """The index of the point to show: the first with a mismatch, else the first undecided, else 0."""
        ranks = [
            2 if (sample.verdict == Verdict.MISMATCH).any() else 1 if _is_open(sample) else 0
            for sample in self.samples
        ]
        return ranks.index(max(ranks))


def _is_open(sample: PairSample) -> bool:
    return bool(sample.doubt) or bool((sample.verdict == Verdict.INCONCLUSIVE).any())


@dataclass(frozen=True)
class PointData:
    """A sample point: the inputs' values and the outputs'."""

    point: Mapping[str, Float]
    values: Mapping[str, Float]

    @staticmethod
    def of(
        inputs: Sequence[TensorInfo],
        point: Sequence[npt.NDArray[np.generic]],
        outputs: Sequence[TensorInfo],
        values: Sequence[npt.NDArray[np.generic]],
    ) -> PointData:
        """Pack the differentiable tensors of a sample point."""

        def pack_all(
            infos: Sequence[TensorInfo], arrays: Sequence[npt.NDArray[np.generic]]
        ) -> dict[str, Float]:
            return {
                info.name: pack(array[np.newaxis], info)[0]
                for info, array in zip(infos, arrays, strict=True)
                if info.is_differentiable
            }

        return PointData(pack_all(inputs, point), pack_all(outputs, values))


@dataclass(frozen=True)
class PairView:
    """One pair at one sample point, with every element's verdict and the result of the whole run."""

    label: str  # `dOUT/dIN`
    output: TensorInfo  # the output that is differentiated
    input_info: TensorInfo  # the input that it is differentiated by
    point: int  # index of the sample point
    sample: PairSample  # every element, packed: real parts before imaginary ones, in rows and in columns
    result: PairResult  # the pair's own result, over all points, with the spec's expectation applied
    failing: tuple[CheckResult, ...] = ()  # the structural checks of its case that fail
    warnings: tuple[str, ...] = ()  # the case's warnings about the pair

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstreams that rows belong to: 1, and 1j where the output is complex."""
        return ("1", "1j") if self.output.is_complex else ("1",)

    def rows(self, index: tuple[int, ...] | None, part: str | None = None) -> npt.NDArray[np.int64]:
        """Return the packed rows of one or all elements of the output, for one or all upstreams."""
        size = self.output.size
        elements = np.arange(size) if index is None else np.array([_flat(index, self.output.shape)])
        starts = [part_index * size for part_index, name in enumerate(self.parts) if part in {None, name}]
        return np.concatenate([start + elements for start in starts])

    def join_parts(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.inexact]:
        """Combine real and imaginary columns as TensorFlow writes gradients: dL/dRe + i dL/dIm."""
        if not self.input_info.is_complex:
            return values
        complex_values: npt.NDArray[np.inexact] = (
            values[:, : self.input_info.size] + 1j * values[:, self.input_info.size :]
        )
        return complex_values


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(index, shape)) if index else 0
