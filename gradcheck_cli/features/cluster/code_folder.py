"""Packs the code of a folder's specs for another machine, and unpacks it there with the same paths.

There the paths lie below another root. A spec finds its data, its code finds the working directory, and
messages name files as they do here.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.running.processes.limits import format_size
from gradcheck_cli.running.selection.imports import dependencies
from gradcheck_cli.running.selection.modules import is_installed
from gradcheck_cli.spec.case import Argument, Case, InputSpec

LIMIT = 64 * 2**20  # bytes; the scheduler holds each folder for as long as a run takes
_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_OWN = Path(__file__).resolve().parents[2]  # each machine has its own gradcheck
_DAY_ONE = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip file


@dataclass(frozen=True)
class CodeFolder:
    """A folder of specs, with the other files of the project that their code imports."""

    digest: str  # SHA-256 of all paths and contents
    archive: bytes  # a zip file; its paths are absolute ones without the leading slash
    path: tuple[str, ...]  # further absolute folders on the module path


def pack(cases: Sequence[Case]) -> CodeFolder:
    """Pack what the cases of one folder need: the folder, and what its code imports from elsewhere.

    For a module elsewhere, its whole package is packed. Installed packages aren't: they must be installed on
    the other machine.

    Raises:
        CaseFailedError: it is too large to be sent.
    """
    folder = Path(cases[0].folder)
    inside = folder.resolve()
    outside = {
        file
        for file in frozenset[Path]().union(*(dependencies(case).files for case in cases))
        if file.is_file() and not file.is_relative_to(inside) and not file.is_relative_to(_OWN)
    }
    files = {*_walk(folder), *(packed_file for file in outside for packed_file in _package_files(file))}
    places = (Path(entry) for entry in sys.path if entry and not is_installed(Path(entry)))
    known_folders = {inside, Path.cwd()}
    return CodeFolder(
        *_zip(sorted(files), folder),
        tuple(
            str(module_folder)
            for module_folder in dict.fromkeys(places)
            if module_folder not in known_folders
            and any(file.is_relative_to(module_folder) for file in outside)
        ),
    )


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, except those that tools keep there for themselves."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not Path(parent, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _package_files(file: Path) -> Iterable[Path]:
    """Return the files of the outermost package that contains a file, or the file itself."""
    top = None
    for parent in file.parents:
        if not (parent / "__init__.py").is_file():
            break
        top = parent
    return (file,) if top is None else _walk(top)


def _zip(files: Iterable[Path], folder: Path) -> tuple[str, bytes]:
    """Return the digest of files and the archive that contains them."""
    digest, room, target = hashlib.sha256(), LIMIT, io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            content = b""
            # A file may be deleted, not plain or unreadable: the code that needs it will say so.
            with suppress(OSError):
                if not file.is_file():
                    continue
                room -= file.stat().st_size
                content = file.read_bytes() if room >= 0 else b""
            if room < 0:
                raise CaseFailedError(
                    "workers",
                    f"{folder}: holds more than {format_size(LIMIT)}, which aren't sent to a cluster "
                    f"(stopped at {file}). Move the specs and their code to a folder of their own.",
                )
            name = str(file).lstrip("/")
            digest.update(f"{len(name)} {name} {len(content)} ".encode(errors="surrogateescape") + content)
            archive.writestr(zipfile.ZipInfo(name, _DAY_ONE), content)
    return digest.hexdigest(), target.getvalue()


def lay_out(digest: str, archive: bytes, store: Path) -> Path:
    """Unpack an archive in its folder in `store`, unless it is there already; return that folder."""
    root = store / digest
    if not root.exists():
        store.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=store))
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as packed:
                packed.extractall(fresh)
            with suppress(OSError):  # another thread was quicker
                fresh.rename(root)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return root


def relocate(case: Case, root: Path) -> Case:
    """Return a case as a case of a folder that was unpacked below `root`."""

    def tensor(spec: InputSpec) -> InputSpec:
        path = str(spec.source.arguments.get("path", ""))
        if spec.source.kind != "file" or not Path(path).is_absolute():
            return spec
        return replace(
            spec,
            source=replace(
                spec.source, arguments={**spec.source.arguments, "path": relocate_path(root, path)}
            ),
        )

    def argument(spec: Argument) -> Argument:
        return replace(spec, tensors=tuple(tensor(inner) for inner in spec.tensors))

    arguments = tuple(argument(spec_argument) for spec_argument in case.arguments)
    return replace(case, folder=relocate_path(root, case.folder), arguments=arguments)


def relocate_path(root: Path, path: str) -> str:
    """Return where an absolute path is found below `root`."""
    return f"{root}{path}"
