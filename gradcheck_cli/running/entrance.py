"""The library entrance for notebooks and tests: specs in, report out, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.errors import NoSpecsError
from gradcheck_cli.running.given import written
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.running.session import InProcess
from gradcheck_cli.spec.cases.case_modes import in_each_mode
from gradcheck_cli.spec.faults import suggest
from gradcheck_cli.spec.load import load_cases, load_mapping

if TYPE_CHECKING:
    from gradcheck_cli.results import Report


Spec = Mapping[str, object] | str | Path


def check(spec_or_path: Spec | Sequence[Spec], *, case: str | None = None, seed: int | None = None) -> Report:
    """Check the gradients that a spec describes, in this process.

    Args:
        spec_or_path: a spec as a mapping, with what a YAML file would hold, and functions and arrays in place
            of names and numbers; or the path of a file or folder; or a list of such.
        case: check the cases of this name alone.
        seed: overrides the specs' own seeds.

    Returns:
        The report: `exit_code`, `summary`, and `cases` with their pairs; `render_report` turns it into text.

    Raises:
        SpecError: the spec has faults: all of them at once.
        NoSpecsError: nothing matched.
        TypeError: it is neither a mapping nor a path, nor a list of them.

    Example:
        >>> report = gradcheck_cli.check({"forward": tf.square, "inputs": {"x": np.ones(3)}})
        >>> assert report.exit_code == 0, gradcheck_cli.render_report(report)
    """
    several = spec_or_path if isinstance(spec_or_path, list | tuple) else [spec_or_path]
    strange = [one for one in several if not isinstance(one, Mapping | str | Path)]
    if strange:
        kind = type(strange[0]).__name__
        raise TypeError(f"a spec must be a mapping or the path of a file, or a list of such, but is {kind}.")
    mappings = [written(one) for one in several if isinstance(one, Mapping)]
    paths = [one for one in several if isinstance(one, str | Path)]
    cases = load_cases(paths, seed=seed) if paths else ()
    if len(mappings) == 1:
        cases += load_mapping(mappings[0], seed=seed)
    elif mappings:
        cases += load_mapping({"ops": mappings}, seed=seed)
    if not cases:
        raise NoSpecsError("there is no spec to check: the list is empty.")
    if case is not None:
        names = sorted({one.name for one in cases})
        cases = tuple(one for one in cases if one.name == case)
        if not cases:
            near = suggest(case, names)
            raise NoSpecsError(
                f"no case is named {case!r}; there are {', '.join(names)}.{near and ' ' + near}"
            )
    return run_in_workers(InProcess(), in_each_mode(cases), seed=seed)
