"""A bounded number of spoilt specs; the many are for `python -m tests.acceptance.mutated_specs`."""

import random
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.mutated_specs import CORPUS, folder_with_code, mutated
from tests.support import processes
from tests.support.processes import ROOT

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_with_code(tmp_path_factory.mktemp("mutated"))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(text=st.sampled_from(CORPUS), chance=st.randoms(use_true_random=False))
def test_a_spoilt_spec_is_read_or_refused(command, folder, text, chance):
    file = folder / "spoilt.yaml"
    file.write_bytes(mutated(text, chance))
    done = command("validate", file)
    assert done.code in (0, 2)
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    if done.code == 2:
        assert done.err.strip()


def test_what_is_spoilt_is_spoilt():
    """Else the tests here would say nothing."""
    chance = random.Random(1)  # noqa: S311 (no secret)
    found = [mutated(text, chance) != text.encode() for text in CORPUS * 12]
    assert sum(found) > 0.75 * len(found)  # some 16 % are spoilt in neither way: those must pass


def test_spoilt_specs_end_in_faults_or_verdicts():
    """Read and checked by a process of its own, whose memory counts."""
    module = ("-m", "tests.acceptance.mutated_specs", "--count", "25", "--run", "--jobs", "1")
    done = processes.run(sys.executable, *module, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\n0 wrong\n")
    assert "'faults': " in done.stdout
    assert "verdicts {" in done.stdout
