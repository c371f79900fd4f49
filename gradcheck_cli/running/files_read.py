"""Which of the user's files a process reads, imports or lists: a record by Python's audit events.

Compiled code, such as TensorFlow's own file system, reads without an event. Nothing is recorded of code that
names it, or that starts other programs.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.util import source_from_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gradcheck_cli.plain_files import MIB, PACKAGES, is_own, is_users, read_plain
from gradcheck_cli.results import FilesRead

_SYSTEM = ("/proc", "/dev", "/sys")  # what is read there differs from run to run
_PROGRAMS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"})
_IMPORT = "<frozen importlib"
_LISTERS = ("importlib/metadata", "pkg_resources")  # they look for installed packages in every folder
_LIMIT = 64 * MIB  # of a larger file, size and time stand for its content
# Words of code that reads files by compiled code or in another process, or asks whether there are some.
_UNSEEN = re.compile(
    rb"\btf\.io\b|gfile|read_file|matching_files|saved_model|load_model|load_weights|from_preset|load_checkpoint"
    rb"|train\.Checkpoint|CheckpointReader|\.restore\b|load_op_library|load_library|(?:Record|Line|Length)Dataset"
    rb"|TextFileInit|Dataset\.(?:list_files|load)|dataset_from_directory|tensorflow_datasets|tfds|h5py|hdf|netCDF"
    rb"|parquet|pyarrow|cv2|soundfile|ctypes|cffi|subprocess|multiprocessing|popen|\.(?:is_?file|is_?dir|exists)\b"
    rb"|getmtime|getsize|\.stat\b",
    re.IGNORECASE,
)


class FileLog:
    """What this process reads from now on. It can't be stopped."""

    def __init__(self) -> None:
        """Begin, with the modules that are imported already."""
        self._opened = {
            file
            for module in list(sys.modules.values())
            if isinstance(module, ModuleType)
            and isinstance(file := vars(module).get("__file__"), str)
            and not any(mark in file for mark in (*PACKAGES, os.path.dirname(os.__file__)))  # noqa: PTH120 (text)
        }
        self._listed: set[str] = set()
        self._searched: set[str] = set()  # folders in which an import looked for a module
        self._imported: set[str] = set()
        self._has_programs = False
        self._listeners: dict[str, Callable[..., None]] = {
            "open": self._on_open,
            "import": self._on_import,
            "os.listdir": self._on_list,
            "os.scandir": self._on_list,
            "ctypes.dlopen": self._on_open,
            "sqlite3.connect": self._on_open,
        }
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        listener = self._listeners.get(event)
        if listener is not None:
            listener(*arguments)
        elif event in _PROGRAMS:
            self._has_programs = True

    def _on_open(self, file: object, mode: object = None, flags: int = 0) -> None:
        del mode
        is_written = flags & os.O_TRUNC or flags & os.O_ACCMODE == os.O_WRONLY
        if isinstance(file, str | bytes | os.PathLike) and not is_written:
            self._opened.add(os.path.abspath(os.fsdecode(file)))  # noqa: PTH100 (`Path` would list and import)

    def _on_import(self, name: str, file: object = None, *_: object) -> None:
        self._imported.add(name)
        self._on_open(file)  # of a compiled module

    def _on_list(self, folder: object) -> None:
        caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001 (as `inspect` has it, without its cost)
        by_import = caller.startswith(_IMPORT)
        if by_import or not (any(lister in caller for lister in _LISTERS) or is_own(caller)):
            path = "." if folder is None else folder
            if isinstance(path, str | bytes | os.PathLike):
                folders = self._searched if by_import else self._listed
                folders.add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 (as above)

    def read(self, *own: Path) -> FilesRead | None:
        """Return what was read so far, beside a spec's own files.

        Returns:
            `None` if other programs were started, which may have read anything.
        """
        if self._has_programs:
            return None
        return FilesRead(
            frozenset(map(_source_of, filter(_counts, {*map(str, own), *self._opened, *self._places()}))),
            frozenset(filter(_counts, set(self._listed))),
        )

    def _places(self) -> set[str]:
        """Return where each module would have been found that the user may have, there or not."""
        searched = set(filter(_counts, set(self._searched)))
        places = set()
        for name in set(self._imported):
            parent, _, last = name.rpartition(".")
            package = sys.modules.get(parent)
            own = vars(package).get("__path__", ()) if isinstance(package, ModuleType) else ()
            for folder in filter(_counts, map(str, own)) if parent else searched:
                places |= {f"{folder}/{last}.py", f"{folder}/{last}/__init__.py"}
        return places


def _source_of(file: str) -> str:
    """Return the module that a compiled file was made of; of a symbolic link, its target."""
    with suppress(ValueError):
        file = source_from_cache(file) if file.endswith(".pyc") else file
    return os.path.realpath(file)


def _counts(path: str) -> bool:
    """Whether a file or folder is the user's, and more than a temporary one."""
    return is_users(path) and not any(
        path == folder or path.startswith(f"{folder}/") for folder in (tempfile.gettempdir(), *_SYSTEM)
    )


class Contents:
    """Digests of what is in files now; each file is looked at once."""

    def __init__(self) -> None:
        """Begin."""
        self._known: dict[str, tuple[str, float]] = {}

    def digest(self, read: FilesRead, before: float = math.inf) -> str:
        """Return a digest of everything that was read.

        Returns:
            Nothing if it can't stand for what was read before that time: a file has changed since, or is code
            that may read what leaves no trace.
        """
        looks = {name: self._look(name) for name in read.files}
        if any(not content or changed > before for content, changed in looks.values()):
            return ""
        # Without their folders: the project may lie elsewhere by now.
        contents = sorted((Path(name).name, content) for name, (content, _) in looks.items())
        return _hash(repr((contents, sorted(map(_list, read.folders)))).encode())

    def _look(self, name: str) -> tuple[str, float]:
        if name not in self._known:
            self._known[name] = _look(Path(name))
        return self._known[name]


def _look(file: Path) -> tuple[str, float]:
    """Return a digest of a file's content, and when it changed; no digest for code that reads unseen."""
    try:
        status = file.stat()
    except OSError:
        return "none", 0.0
    try:
        content = read_plain(file, _LIMIT)
    except OSError:  # too large, say
        content = f"{status.st_size} {status.st_mtime_ns}".encode()
    is_unseen = file.suffix == ".py" and _UNSEEN.search(content)
    return "" if is_unseen else _hash(content), status.st_mtime


def _list(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name != "__pycache__" and name[0] != ".")  # noqa: PTH208 (names alone)
    return []


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
