"""Options in pyproject.toml and in the environment: which of them holds, and what is wrong with one."""

import pytest

from gradcheck_cli.cli.commands.run import command as run_command
from gradcheck_cli.features.watch.merge_command import command as merge_command

VALUES = {
    "seed": ("3", "4"), "op": ("huber", "conv"), "case": ("default", "wide"), "k": ("huber", "conv"),
    "tag": ("a", "b"), "op-type": ("MatMul", "Tanh"), "last-failed": (True, False),
    "failed-first": (True, False), "budget": ("20.0", "5.0"), "changed": ("HEAD", "main"),
    "shard": ("1/2", "2/2"), "exitfirst": (True, False), "max-failures": ("3", "4"),
    "max-time": ("3.5", "4.5"), "cache-dir": ("c1", "c2"), "format": ("json", "junit"),
    "ignore": ("GC212", "GC2"), "report": ("json=a.json", "junit=b.xml"), "cov": ("pkg", "other"),
    "cov-fail-under": ("90.0", "80.0"), "branch-fail-under": ("90.0", "80.0"),
    "baseline": ("a.lock", "b.lock"), "update-baseline": ("a.lock", "b.lock"), "strict": (True, False),
    "strict-precision": (True, False), "mode": ("eager", "xla"), "device": ("GPU:0", "CPU:0"),
    "power": ("0.02:0.2", "0.03:0.3"), "require": ("full", "full"), "search": ("2.0", "3.0"),
    "jobs": ("3", "4"), "timeout": ("3.5", "4.5"), "memory": ("1GiB", "2GiB"), "isolate": (True, False),
    "on": ("dask://other:8786", "dask://host:8786"), "allow-version-skew": (True, False),
    "durations": ("3", "4"), "quiet": (True, False), "verbose": (True, False), "watch": (True, False),
}  # fmt: skip


@pytest.fixture
def project(engine, tmp_path, monkeypatch):
    """Return a function that writes the `[tool.gradcheck]` of the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.gradcheck]\n{text}\n")

    return write


@pytest.fixture
def shown(invoke):
    """Return a function that reads `--show-config`: key -> value and source."""

    def read(*arguments):
        result = invoke("run", "--show-config", *arguments)
        assert result.code == 0, result.err
        rows = [line.split("  ") for line in result.out.splitlines()]
        cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
        return {key: (value, source) for key, value, source in cells}

    return read


def in_toml(value):
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def as_shown(value):
    if isinstance(value, bool):
        return str(value).lower()
    return {"1GiB": str(2**30), "2GiB": str(2**31), "1/2": "1 2", "2/2": "2 2"}.get(value, value)


def test_every_option_is_here():
    assert set(run_command._keys()) == set(VALUES)


@pytest.mark.parametrize("key", VALUES)
def test_each_option_in_the_file_and_in_the_environment(project, shown, monkeypatch, key):
    in_file, in_environment = VALUES[key]
    variable = f"GRADCHECK_{key.upper().replace('-', '_')}"
    assert shown()[key][1] == "default"
    project(f"{key} = {in_toml(in_file)}")
    assert shown()[key] == (as_shown(in_file), "pyproject.toml")
    monkeypatch.setenv(variable, str(in_environment))
    assert shown()[key] == (as_shown(in_environment), variable)


def test_the_command_line_comes_first(project, shown, monkeypatch):
    project("durations = 1\nspecs = 'here'")
    monkeypatch.setenv("GRADCHECK_DURATIONS", "2")
    monkeypatch.setenv("GRADCHECK_SPECS", "there")
    found = shown("--durations", "3", "elsewhere")
    assert (found["durations"], found["specs"]) == (("3", "command line"), ("elsewhere", "command line"))
    found = shown()
    assert (found["durations"], found["specs"]) == (
        ("2", "GRADCHECK_DURATIONS"),
        ("there", "GRADCHECK_SPECS"),
    )
    monkeypatch.delenv("GRADCHECK_SPECS")
    monkeypatch.delenv("GRADCHECK_DURATIONS")
    found = shown()
    assert (found["durations"], found["specs"]) == (("1", "pyproject.toml"), ("here", "pyproject.toml"))


def test_what_is_configured_holds(project, invoke, engine):
    project("k = 'nothing'\n")
    result = invoke("run")
    assert (result.code, result.err) == (5, "none of 1 cases matches -k 'nothing'.\n")
    project("quiet = true\nspecs = ['a', 'b']\n")
    assert "specs/op.yaml" not in invoke("run").out
    assert engine.asked["paths"] == ["a", "b"]


def test_paths_start_at_the_file(project, invoke, tmp_path, monkeypatch):
    project('report = ["json=out.json", "github"]\nbaseline = "g.lock"')
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    result = invoke("run", "--show-config")
    assert "json=../out.json github" in result.out
    assert "../g.lock" in result.out
    assert invoke("run").err.startswith("../g.lock: can't be read")


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "strickt = true\nseeds = 3",
            [
                "pyproject.toml:4: tool.gradcheck.strickt: unknown key. Did you mean 'strict'?",
                "pyproject.toml:5: tool.gradcheck.seeds: unknown key. Did you mean 'seed'?",
            ],
        ),
        ("max_failures = 3", ["tool.gradcheck.max_failures: unknown key. Did you mean 'max-failures'?"]),
        ("zzz = 3", ["unknown key. Possible keys: allow-version-skew, baseline, branch-fail-under, budget,"]),
        ("strict = 'yes'", ["pyproject.toml:4: tool.gradcheck.strict: must be true or false, but got 'yes'"]),
        ("seed = -1", ["pyproject.toml:4: tool.gradcheck.seed: -1 is not in the range x>=0."]),
        ("seed = [1]", ["tool.gradcheck.seed: must be a text or a number, but got [1]"]),
        ("seed = true", ["tool.gradcheck.seed: must be a text or a number, but got True"]),
        ("tag = [true]", ["tool.gradcheck.tag: must be a text, a number, or a list of them, but got [True]"]),
        ("report = 'json'", ["tool.gradcheck.report: must be json=FILE"]),
        ("show-config = true", ["tool.gradcheck.show-config: unknown key."]),
        ("collect-only = true", ["tool.gradcheck.collect-only: unknown key."]),
        ("specs = 3", ["tool.gradcheck.specs: must be a path or a list of paths, but got 3"]),
        ("specs = []", ["tool.gradcheck.specs: must be a path or a list of paths, but got []"]),
    ],
)
def test_what_is_wrong_with_the_file(project, invoke, text, messages):
    project(text)
    result = invoke("run")
    assert result.code == (2 if messages else 0)
    for message in messages:
        assert message in result.err


def test_what_is_wrong_with_the_environment(project, invoke, monkeypatch):
    project("")
    monkeypatch.setenv("GRADCHECK_SEED", "many")
    result = invoke("run")
    assert (result.code, result.err) == (2, "GRADCHECK_SEED: 'many' is not a valid integer range.\n")


def test_a_variable_that_is_almost_ours_is_told(project, invoke, monkeypatch):
    project("")
    monkeypatch.setenv("GRADCHECK_STRIKT", "1")
    monkeypatch.setenv("GRADCHECK_OF_SOMEBODY_ELSE", "1")
    assert (
        invoke("run").err == "GRADCHECK_STRIKT: unknown variable, ignored. Did you mean GRADCHECK_STRICT?\n"
    )


def test_a_table_that_is_none(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("tool.gradcheck = 3\n")
    result = invoke("run")
    assert result.code == 2
    assert "tool.gradcheck: must be a table, but got 3" in result.err


def test_merge_takes_the_runs_cache_alone(project, invoke, tmp_path):
    project('cache-dir = "remembered"\nreport = ["json=out.json"]\nformat = "json"')
    assert set(merge_command._keys()) == {"cache-dir"}
    assert invoke("run", "--report", "json=shard.json").code == 0
    (tmp_path / "remembered" / "history.json").unlink()
    result = invoke("merge", "shard.json")
    assert result.out.startswith("specs/op.yaml")
    assert (tmp_path / "remembered" / "history.json").exists()


# --- whose settings hold


@pytest.fixture
def monorepo(project, tmp_path):
    """Two libraries, each with its own settings, in a folder that has settings too."""
    project("durations = 1")
    for name, count in (("a", 2), ("b", 3)):
        folder = tmp_path / "libs" / name
        (folder / "specs").mkdir(parents=True)
        (folder / "pyproject.toml").write_text(
            f"[tool.gradcheck]\ndurations = {count}\nbaseline = 'g.lock'\n"
        )
    (tmp_path / "libs" / "plain").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "durations", "file"),
    [
        ((), "1", "pyproject.toml"),
        (("libs/a/specs",), "2", "libs/a/pyproject.toml"),
        (("libs/a/specs", "libs/a"), "2", "libs/a/pyproject.toml"),
        (("libs/plain",), "1", "pyproject.toml"),
        (("libs/a/specs", "--config", "libs/b/pyproject.toml"), "3", "libs/b/pyproject.toml"),
        (("--config", "libs/b/pyproject.toml"), "3", "libs/b/pyproject.toml"),
    ],
)
def test_the_settings_nearest_to_the_specs_hold(monorepo, shown, arguments, durations, file):
    assert shown(*arguments)["durations"] == (durations, file)


def test_which_file_of_settings_is_used_is_said(monorepo, invoke):
    result = invoke("run", "libs/a/specs", "--show-config")
    assert result.err == "settings: libs/a/pyproject.toml\n"
    assert "libs/a/g.lock" in result.out
    assert invoke("run", "--show-config").err == ""


def test_specs_of_two_libraries_are_refused_together(monorepo, invoke):
    result = invoke("run", "libs/a/specs", "libs/b/specs")
    assert result.code == 2
    assert result.err == (
        "libs/a/pyproject.toml and libs/b/pyproject.toml set options for these specs: run gradcheck once for "
        "each, or choose one with --config\n"
    )
    assert invoke("run", "--config", "nowhere.toml").err == "--config: there is no file 'nowhere.toml'\n"


def test_a_configured_baseline_can_be_left_away(project, invoke):
    project("baseline = 'missing.lock'")
    assert "missing.lock: can't be read" in invoke("run").err
    assert "missing.lock" not in invoke("run", "--no-baseline").err
