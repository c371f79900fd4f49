"""Each gradient that this TensorFlow registers is covered by a spec, or excepted by name and reason."""

from __future__ import annotations

from functools import cache

from gradcheck_cli.features.coverage.list_command import cases_by_type
from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.load import Loaded, load
from tests.audit.audit_table import SPECS

start_tensorflow()

from gradcheck_cli.features.coverage.registry_entries import read_gradients  # noqa: E402 (TensorFlow first)
from gradcheck_cli.tensorflow_backend.private.private_graphs import op_types  # noqa: E402 (TensorFlow first)
from gradcheck_cli.tensorflow_backend.startup import version  # noqa: E402


def registered():
    # By TensorFlow itself: other tests of the process register some, too.
    entries = [entry for entry in read_gradients() if entry.status == "gradient"]
    return {entry.name for entry in entries if entry.function.startswith("tensorflow.")}


def test_the_registry_is_read():
    assert len(registered()) >= 414
    assert {"MatMul", "NcclReduce", "While"} <= registered()


@cache
def audited() -> Loaded:
    """Return the audit's specs, which take a while to read."""
    return load([SPECS])


def covered():
    return set(cases_by_type(audited().cases, version()))


def excepted():
    return {one.op_type for one in audited().exceptions if one.holds(version())}


def test_nothing_is_silently_left_out():
    missing = registered() - covered() - excepted()
    assert not missing, (
        f"TensorFlow {version()} registers gradients that no spec covers: {', '.join(sorted(missing))}. "
        "Write a spec in specs/tensorflow, or except them in exceptions.yaml, with the reason."
    )


def test_nothing_is_covered_and_excepted():
    both = covered() & excepted()
    assert not both, f"covered, so no longer to be excepted: {', '.join(sorted(both))}"


def test_nothing_is_named_that_is_gone():
    # A raw op type without a gradient may be specified: that there's none is a finding, too.
    explicit = {name for case in audited().cases for name in case.code.covers}
    gone = ((explicit | excepted()) - registered()) | (covered() - registered() - op_types())
    assert not gone, (
        f"TensorFlow {version()} has no gradient of: {', '.join(sorted(gone))}. Say for which versions it is "
        'meant, such as tensorflow: ">=2.18".'
    )


def test_each_exception_says_why():
    for one in audited().exceptions:
        assert len(one.reason.split()) >= 3, one
        assert one.kind != "other", f"{one.op_type}: say what it is, or add a kind"
