"""What a command loads: TensorFlow takes seconds, and --help has 0.3 s."""

import subprocess
import sys

import pytest

PROBE = """
import sys
from gradcheck_cli.cli.main import run_command
code = run_command(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""
SPEC = "op: product\nop_type: MatMul\ninputs: {a: {shape: [2, 2]}, b: {shape: [2, 2]}}\n"


@pytest.fixture
def loaded(tmp_path):
    """Run a command in a process of its own; return the packages it has loaded."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "product.yaml").write_text(SPEC)

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-c", PROBE, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return set(done.stderr.splitlines()[-1].split())

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        *(
            pytest.param([name, "-h"], marks=pytest.mark.feature)
            for name in ("show", "list", "trace", "blame", "mutate")
        ),
    ],
)
def test_help_loads_nothing_heavy(loaded, arguments):
    assert not loaded(*arguments) & {"tensorflow", "keras", "numpy", "rich", "yaml"}


@pytest.mark.parametrize(
    "arguments", [["--version"], ["validate"], pytest.param(["schema"], marks=pytest.mark.feature)]
)
def test_reading_specs_never_loads_tensorflow(loaded, arguments):
    assert not loaded(*arguments) & {"tensorflow", "keras"}


@pytest.mark.feature
def test_the_library_imports_tensorflow_at_the_first_check_only():
    # `start_tensorflow` holds its start-up messages back, which an import at the top of a file would print.
    probe = (
        "import sys\nfrom gradcheck_cli import assert_gradients, check\nprint('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_the_probe_can_fail(loaded):
    assert "yaml" in loaded("validate")
