"""The library entrance for notebooks and tests: specs in, report out, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gradcheck_cli.errors import NoSpecsError
from gradcheck_cli.running.session import run_cases
from gradcheck_cli.spec.faults import suggest
from gradcheck_cli.spec.load import load_cases, load_mapping
from gradcheck_cli.spec.modes import in_each_mode

if TYPE_CHECKING:
    from pathlib import Path

    from gradcheck_cli.results import Report


def check(
    spec_or_path: Mapping[str, object] | str | Path, *, case: str | None = None, seed: int | None = None
) -> Report:
    """Check the gradients that a spec describes, in this process.

    Args:
        spec_or_path: a spec as a mapping, with what a YAML file would hold; or the path of a file or folder.
        case: check the cases of this name alone.
        seed: overrides the specs' own seeds.

    Returns:
        The report: `exit_code`, `summary`, and `cases` with their pairs; `render_report` turns it into text.

    Raises:
        SpecError: the spec has faults: all of them at once.
        NoSpecsError: nothing matched.

    Example:
        >>> report = gradcheck_cli.check({"forward": "tensorflow:square", "inputs": {"x": {"shape": [3]}}})
        >>> assert report.exit_code == 0, gradcheck_cli.render_report(report)
    """
    if isinstance(spec_or_path, Mapping):
        cases = load_mapping(spec_or_path, seed=seed)
    else:
        cases = load_cases([spec_or_path], seed=seed)
    if case is not None:
        names = sorted({one.name for one in cases})
        cases = tuple(one for one in cases if one.name == case)
        if not cases:
            near = suggest(case, names)
            raise NoSpecsError(
                f"no case is named {case!r}; there are {', '.join(names)}.{near and ' ' + near}"
            )
    return run_cases(in_each_mode(cases), seed=seed)
