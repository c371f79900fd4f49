# ruff: noqa: T201 (a script: printing is what it is for)
"""Run specs with many seeds, every second one beside busy processes, and list the verdicts that differ.

`python -m tests.acceptance.seed_flips specs/seeds specs/layers --seeds 30 --busy 12`. A verdict should depend
neither on the inputs that were drawn nor on the machine: ends with exit code 1 if one does.
`--seen FILE` keeps what each seed gave, and a later call with other seeds compares it with those, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUSY = "while True: pass"


def verdicts_of(paths, seed):
    """Return the verdict of each case, and of each of its pairs, by names."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "gradcheck_cli", "run", *paths, "-q", "--seed", str(seed)]
        subprocess.run(
            [*command, "--report", f"json={file}"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        )
        cases = json.loads(file.read_text())["cases"]
    verdicts = {}
    for case in cases:
        name = " ".join(str(case[key]) for key in ("spec", "op", "case", "dtype", "mode"))
        verdicts[name] = case["status"]
        for pair in case["pairs"]:
            verdicts[f"{name} {pair['label']} {pair['order']}"] = pair["status"]
    return verdicts


def main():
    """Run all seeds, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--busy", type=int, default=12, help="processes beside every second run")
    parser.add_argument("--seen", type=Path, help="a JSON file of what earlier calls saw, to be added to")
    options, more = parser.parse_known_args()  # what isn't known is for `gradcheck run`, as -j 1
    seen = defaultdict(lambda: defaultdict(list))
    if options.seen and options.seen.exists():
        for name, verdicts in json.loads(options.seen.read_text()).items():
            seen[name].update(verdicts)
    for seed in range(options.first, options.first + options.seeds):
        others = [
            subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.busy if seed % 2 else 0)
        ]
        try:
            for name, verdict in verdicts_of([*options.paths, *more], seed).items():
                seen[name][verdict].append(seed)
        finally:
            for other in others:
                other.kill()
                other.wait()
        if options.seen:
            options.seen.write_text(json.dumps(seen))
        flipped = {name: dict(verdicts) for name, verdicts in seen.items() if len(verdicts) > 1}
        load = os.getloadavg()[0]
        where = f"seed {seed}, beside {len(others)}, load {load:.1f}"
        print(f"{where}: {len(seen)} verdicts, {len(flipped)} differ", flush=True)
        for name, verdicts in flipped.items():
            print("   ", name, verdicts, flush=True)
    return bool(flipped)


if __name__ == "__main__":
    sys.exit(main())
