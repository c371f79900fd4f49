"""Takes the pictures in docs/screenshots: a failing run in a terminal and on a page, in a real Chromium.

Needs playwright, Pillow, and a Chromium on the PATH or named by $CHROMIUM. Look at the pictures before you
commit them.

    python -m tests.acceptance.screenshots
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "screenshots"
OPS = """\
import tensorflow as tf


@tf.custom_gradient
def log1pexp(x):
    e = tf.exp(x)
    return tf.math.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))


@tf.custom_gradient
def mish(x):
    t = tf.tanh(tf.math.softplus(x))

    def grad(upstream):
        return upstream * (t + (1 - t * t) * tf.sigmoid(x))  # x is missing in the second term

    return x * t, grad


def block(x):
    h = mish(2 * x)
    return h * tf.exp(-tf.square(h)) + tf.sin(x)


@tf.custom_gradient
def clipped(x):
    return tf.sin(x), lambda upstream: tf.clip_by_value(upstream, -1, 1) * tf.cos(x)
"""
SPEC = """\
op: log1pexp
forward: ops:log1pexp
inputs: {x: [3, 4]}
---
op: block
forward: ops:block
inputs: {x: [3, 4]}
---
op: clipped
forward: ops:clipped
inputs: {x: [3, 4]}
"""
# What a terminal does with a line that is too long: it goes on in the next, wherever that is.
TERMINAL = """\
<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; display: inline-block; background: #0c0c0c; }}
pre {{ margin: 0; padding: 14px 16px; width: calc({columns}ch + 2px); color: #d9d9d9;
white-space: pre-wrap; word-break: break-all; font: 14px/19px "DejaVu Sans Mono", monospace; }}
</style><pre>{code}</pre>
"""


def main() -> None:
    """Write all pictures."""
    from playwright.sync_api import sync_playwright

    browser_file = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        folder = Path(scratch)
        (folder / "ops.py").write_text(OPS)
        (folder / "specs").mkdir()
        (folder / "specs" / "activations.yaml").write_text(SPEC)
        browser = driver.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
        for columns in (80, 120):
            (folder / "terminal.html").write_text(_terminal(folder, columns), encoding="utf-8")
            page = browser.new_page(viewport={"width": 1200, "height": 600})
            page.goto((folder / "terminal.html").as_uri())
            page.locator("body").screenshot(path=FOLDER / f"terminal-{columns}.png")
        for device, width in (("desktop", 1280), ("phone", 390)):
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                page.goto((folder / "run.html").as_uri())
                page.screenshot(path=FOLDER / f"page-{device}-{scheme}.png", full_page=True)
        browser.close()
    for picture in FOLDER.glob("*.png"):  # a third of the bytes, and no difference to be seen
        Image.open(picture).quantize(256).save(picture, optimize=True)


def _terminal(folder: Path, columns: int) -> str:
    """Run the specs in a terminal so wide, write the page beside them, and return what it shows as HTML."""
    environment = {
        **os.environ,
        "COLUMNS": str(columns),
        "FORCE_COLOR": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "gradcheck_cli", "run", "specs", "--report", "html=run.html"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    console = Console(record=True, width=10_000, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(Text.from_ansi(f"$ gradcheck run specs --report html=run.html\n{done.stdout}"))
    code = console.export_html(theme=MONOKAI, code_format="{code}", inline_styles=True)
    return TERMINAL.format(columns=columns, code="\n".join(line.rstrip() for line in code.splitlines()))


if __name__ == "__main__":
    main()
