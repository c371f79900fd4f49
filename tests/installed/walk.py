"""Runs each command and each kind of report of an installed gradcheck, on a right and on a wrong spec.

    ENVIRONMENT/bin/python tests/installed/walk.py             # the plain package
    ENVIRONMENT/bin/python tests/installed/walk.py --pytest    # and with pytest alone

It uses the standard library only, and the gradcheck that is installed beside the Python that runs it. What is
to be walked comes from `--help`: a command or a kind of report that nothing here runs is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

MODULE = """
import tensorflow as tf

@tf.custom_gradient
def cube(x):
    return x**3, lambda upstream: 3.0 * upstream * x**2

@tf.custom_gradient
def wrong_cube(x):
    return x**3, lambda upstream: 2.0 * upstream * x**2
"""
SPEC = "op: {name}\nforward: walked:{name}\ninputs: {{x: {{shape: [3]}}}}\n"
FILES = {
    "walked.py": MODULE,
    "right.yaml": SPEC.format(name="cube"),
    "wrong.yaml": SPEC.format(name="wrong_cube"),
    "bad.yaml": SPEC.format(name="cube").replace("forward", "forwrd"),
    "skipped.yaml": SPEC.format(name="cube") + "pairs: {dy/dx: skip}\n",
}
REPORTS = {"json": "json", "junit": "xml", "markdown": "md", "sarif": "sarif", "html": "html"}
ALL_REPORTS = "--report github " + " ".join(f"--report {kind}=%.{end}" for kind, end in REPORTS.items())
IN_THE_WAY = ("Traceback", "internal error", "Error:", "GC318")
PARSED = {"json", "sarif", "junit", "html"}
BAD_USAGE = 2
HERE = Path(__file__).resolve()


class Step(NamedTuple):
    """A command line, the exit codes that the documents name for it, and a text that it must print."""

    line: str
    code: int
    told: str = ""

    @property
    def command(self) -> str:
        return self.line.split()[0]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def lacks(package: str) -> bool:
    return find_spec(package) is None


def steps() -> list[Step]:
    """Return the command lines. The first of each command has a process of its own."""
    drawing = Step("show right.yaml --pair dy/dx --plot right.png", 0)
    drawing_svg = Step("show wrong.yaml --pair dy/dx --plot wrong.svg", 0)
    cluster = Step("run wrong.yaml -q --on dask://127.0.0.1:1", 3, "no Dask scheduler answers")
    if lacks("matplotlib"):
        told = 'drawing needs matplotlib, which isn\'t installed: pip install "gradcheck-cli[plot]"'
        drawing, drawing_svg = drawing._replace(code=2, told=told), drawing_svg._replace(code=2, told=told)
    if lacks("distributed"):
        told = '--on needs distributed, which isn\'t installed: pip install "gradcheck-cli[dask]"'
        cluster = cluster._replace(code=2, told=told)
    return [
        Step(f"run wrong.yaml {ALL_REPORTS}".replace("%", "wrong"), 1, "MISMATCH GC101"),
        Step(f"run right.yaml {ALL_REPORTS}".replace("%", "right"), 0, "1 passed"),
        Step("run skipped.yaml -j 0", 3, "GC401"),
        Step("run bad.yaml -j 0", 2, "bad.yaml:2: forwrd: unknown key"),
        Step("run right.yaml -j 0 --baseline new.lock", 2),
        Step("run right.yaml -j 0 --update-baseline right.lock", 0),
        Step("run right.yaml -j 0 --baseline right.lock --durations 3 -v", 0),
        Step("run wrong.yaml -j 0 --update-baseline wrong.lock --accept", 1, "known faults"),
        Step("run wrong.yaml -j 0 --baseline wrong.lock", 0, "known GC512"),
        Step("run right.yaml -j 0 --cov walked --cov-fail-under 100", 3, "wrong_cube"),
        Step("run right.yaml -j 0 --cov walked", 0, "wrong_cube"),
        *(
            Step(f"run {name}.yaml -j 0 --format {form}", code)
            for form in ("json", "junit", "github", "markdown", "sarif", "concise", "html")
            for name, code in (("right", 0), ("wrong", 1))
        ),
        Step("run right.yaml -j 0 --collect-only", 0),
        Step("run right.yaml --show-config", 0),
        cluster,
        Step("init walked:cube -o drafts/cube.yaml", 0),
        Step("init walked:wrong_cube -o -", 0, "The first run finds:"),
        Step("validate right.yaml wrong.yaml", 0),
        *(Step(f"validate bad.yaml --format {form}", 2) for form in ("table", "json", "github", "sarif")),
        Step("list Relu", 0, "Relu"),
        Step("list Relu --format json", 0),
        Step("list Relu --specs right.yaml", 0),
        Step("show wrong.yaml --pair dy/dx", 0, "analytic"),
        Step("show right.yaml --pair dy/dx --format json", 0),
        Step("show wrong.yaml --pair dy/dx --plot wrong_pair.html", 0),
        drawing,
        drawing_svg,
        Step("trace wrong.yaml", 0),
        Step("trace right.yaml --format json", 0),
        Step("blame wrong.yaml", 1, "wrong_cube"),
        Step("blame right.yaml --format json", 0),
        Step("search wrong.yaml --seconds 1", 1),
        *(
            Step(f"search right.yaml --seconds 0.1 -j 0 --format {form}", 0)
            for form in ("json", "junit", "github", "markdown", "sarif", "concise", "html")
        ),
        Step("mutate right.yaml", 0, "caught"),
        Step("mutate wrong.yaml -j 0 --format json", 3),
        Step("merge right.json wrong.json", 1, "1 mismatched"),
        Step(f"merge right.json {ALL_REPORTS}".replace("%", "merged"), 0),
        *(
            Step(f"merge {name}.json --format {form}", code)
            for form in ("json", "junit", "github", "markdown", "sarif", "concise", "html")
            for name, code in (("right", 0), ("wrong", 1))
        ),
        Step("diff right.json right.json", 0),
        Step("diff right.json worse.json", 1),
        Step("diff right.json worse.json --format json", 1),
        Step("explain GC101", 0, "GC101"),
        Step("explain", 0, "GC401"),
        Step("schema", 0),
        Step("schema --report", 0),
        *(Step(f"completion {shell}", 0) for shell in ("bash", "zsh", "fish")),
    ]


class Walk:
    """Runs command lines in a folder, and keeps what is wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.faults, self.count = folder, [], 0
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / "drafts").mkdir()
        self.environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "GITHUB_STEP_SUMMARY": str(folder / "page"),
        }
        self.environment.pop("PYTHONPATH", None)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def help_of(self, *command: str) -> str:
        done = self.python("-m", "gradcheck_cli", *command, "--help")
        self.judge(
            Step(" ".join([*command, "--help"]), 0, "Usage:"), done.returncode, done.stdout, done.stderr
        )
        return done.stdout

    def alone(self, step: Step) -> None:
        began = time.monotonic()
        done = self.python("-m", "gradcheck_cli", *step.line.split())
        self.judge(step, done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def together(self, shared: list[Step]) -> None:
        """Run command lines in one process, which imports TensorFlow once."""
        lines = self.folder / "lines.json"
        lines.write_text(json.dumps([step.line for step in shared]))
        done = self.python(str(HERE), "--lines", str(lines))
        try:
            results = json.loads(done.stdout)
        except ValueError:
            self.faults.append(f"the process of {len(shared)} commands ended: {done.stderr[-2000:]}")
            return
        for step, (code, out, err, seconds) in zip(shared, results, strict=True):
            self.judge(step, code, out, err, seconds)

    def judge(self, step: Step, code: int, out: str, err: str, seconds: float = 0.0) -> None:
        """Note what is wrong with the end of a command."""
        self.count += 1
        faults = [] if code == step.code else [f"exit code {code}, expected {step.code}"]
        faults += [
            f"printed {text!r}" for text in IN_THE_WAY if text in out + err and "explain" not in step.line
        ]
        if step.told and step.told not in out + err:
            faults.append(f"didn't print {step.told!r}")
        form = re.search(r"--format (\w+)", step.line)
        contents = {f"--format {form[1]}": (form[1], out)} if form and form[1] in PARSED else {}
        files = re.findall(r"(\w+)[=:](\S+\.\w+)|(?:--plot|-o) ((?:\S+)\.(\w+))", step.line)
        for kind, name, output, ending in files:
            file = self.folder / (name or output)
            if file.exists():
                contents[file.name] = kind or ending, file.read_bytes().decode("utf-8", "replace")
            elif code == step.code != BAD_USAGE:
                faults.append(f"{file.name} wasn't written")
        for name, (kind, content) in contents.items():
            try:
                require_kind(kind, content)
            except ValueError as error:
                faults.append(f"{name}: isn't {kind}: {error}")
        state = "ok" if not faults else "WRONG"
        last = (out.strip().splitlines() or err.strip().splitlines() or [""])[-1]
        say(f"{state:5} {code} {seconds:5.1f} s  gradcheck {step.line}   {last.strip()[:70]}")
        self.faults += [f"gradcheck {step.line}: {fault}\n{out[-1500:]}{err[-1500:]}" for fault in faults]


def require_kind(kind: str, content: str) -> None:
    """Refuse a report that isn't of its kind."""
    if not content.strip():
        raise ValueError("it is empty")
    if kind in {"json", "sarif"}:
        json.loads(content)
    elif kind == "junit":
        try:
            ET.fromstring(content)  # noqa: S314 (our own)
        except ET.ParseError as error:
            raise ValueError(error) from error
    elif kind == "html" and not ("<html" in content and "</html>" in content):
        raise ValueError(content[:80])


def offered(text: str) -> set[str]:
    """Return the kinds of output that a command's help names."""
    words = " ".join(text.split())
    kinds = [
        kind
        for choice in re.findall(r"(?:--format \[|\{)([a-z|0-9]+)[\]}]", words)
        for kind in choice.split("|")
    ]
    kinds += re.findall(r"\b(\w+)=FILE\b", words.partition("--report KIND=FILE")[2].partition(" --")[0])
    kinds += ["github"] if " or github" in words else []
    kinds += re.findall(r"([a-z-]+)\[:FILE\]", words.replace("- ", "-"))
    kinds += re.findall(r"\.(png|svg|html|\w+)\b", words.partition("--plot FILE")[2].partition(")")[0])
    return set(kinds)


def walked(command: str, every: Iterable[Step]) -> set[str]:
    """Return the kinds of output that the steps of a command ask for."""
    kinds = set()
    for step in every:
        if step.command == command:
            words = step.line.split()
            kinds |= {word.partition("=")[0].partition(":")[0] for word in words}
            kinds |= {word.rpartition(".")[2] for word in words}
            kinds |= set() if "--format" in words else {"table"}
    return kinds


def write_worse(right: Path, worse: Path) -> None:
    """Write the report of a run in which the right gradient has become wrong."""
    report = json.loads(right.read_text(encoding="utf-8"))
    (case,) = report["cases"]
    case["status"] = case["pairs"][0]["status"] = "mismatched"
    report["summary"] |= {"passed": 0, "mismatched": 1}
    worse.write_text(json.dumps({**report, "exit_code": 1}), encoding="utf-8")


def walk_commands(walk: Walk) -> None:
    """Run everything that `--help` names."""
    every = steps()
    commands = re.findall(r"^  ([a-z]+)  ", walk.help_of().partition("\nCommands:")[2], re.MULTILINE)
    for command in sorted({step.command for step in every} ^ set(commands)):
        walk.faults.append(f"{command}: in --help or in the walk, not in both")
    with ThreadPoolExecutor(2) as pool:
        helps = dict(zip(commands, pool.map(walk.help_of, commands), strict=True))
        for command, text in helps.items():
            for kind in sorted(offered(text) - walked(command, every)):
                walk.faults.append(f"{command}: its help names {kind}, which isn't walked")
        runs, every = every[:2], every[2:]  # later steps read their reports
        list(pool.map(walk.alone, runs))
        write_worse(walk.folder / "right.json", walk.folder / "worse.json")
        first = {step.command: step for step in reversed(every)}
        first.pop("run")
        alone = [step for step in every if first.get(step.command) is step]
        rest = pool.submit(walk.together, [step for step in every if step not in alone])
        list(pool.map(walk.alone, alone))
        rest.result()
    page = (walk.folder / "wrong.html").read_text(encoding="utf-8")
    if lacks("matplotlib") and page.count("drawing needs matplotlib") != 1:
        walk.faults.append("wrong.html: must say once what brings the pictures")


def walk_pytest(walk: Walk) -> None:
    """Run `pytest --gradcheck`, with strict markers and with warnings as errors."""
    for name, words, code in (
        ("right", "2 passed", 0),
        ("wrong", "1 failed, 1 passed", 1),
        ("skipped", "1 failed, 1 skipped", 1),
    ):
        folder = walk.folder / f"pytest_{name}"
        folder.mkdir()
        (folder / "walked.py").write_text(MODULE)
        (folder / f"{name}.gradcheck.yaml").write_text(FILES[f"{name}.yaml"])
        options = ("--gradcheck", "--strict-markers", "-W", "error", "-p", "no:cacheprovider")
        done = walk.python("-m", "pytest", *options, str(folder))
        last = (done.stdout.strip().splitlines() or [""])[-1]
        say(f"{'ok' if done.returncode == code else 'WRONG':5} {done.returncode}  pytest {name}   {last}")
        if done.returncode != code or words not in last:
            walk.faults.append(f"pytest {name}: {done.stdout[-2000:]}{done.stderr[-1000:]}")


def run_lines(lines: list[str]) -> list[tuple[int, str, str, float]]:
    """Run command lines in this process; return each exit code with what was printed."""
    from gradcheck_cli.cli.main import run_command

    results = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        saved = os.dup(1), os.dup(2)
        for line in lines:
            began = time.monotonic()
            for stream, descriptor in ((out, 1), (err, 2)):
                stream.seek(0)
                stream.truncate()
                os.dup2(stream.fileno(), descriptor)
            code = run_command(line.split())
            sys.stdout.flush()
            sys.stderr.flush()
            texts = [os.pread(stream.fileno(), 2**26, 0).decode("utf-8", "replace") for stream in (out, err)]
            for own, descriptor in zip(saved, (1, 2), strict=True):
                os.dup2(own, descriptor)
            results.append((code, *texts, time.monotonic() - began))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Walk through an installed gradcheck.")
    parser.add_argument(
        "--pytest", action="store_true", help="run pytest --gradcheck instead of the commands"
    )
    parser.add_argument("--lines", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lines is not None:
        say(json.dumps(run_lines(json.loads(options.lines.read_text()))))
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder))
        where = walk.python("-c", "import gradcheck_cli; print(gradcheck_cli.__file__)").stdout
        if "site-packages" not in where:
            sys.exit(f"walk: must walk an installed gradcheck, but found {where.strip() or 'none'}")
        (walk_pytest if options.pytest else walk_commands)(walk)
    for fault in walk.faults:
        say(f"\n{fault}")
    say(f"walk: {walk.count} commands, {len(walk.faults)} faults, {time.monotonic() - began:.0f} s")
    sys.exit(bool(walk.faults))


if __name__ == "__main__":
    main()
