"""What a Dask worker does: it checks the cases of one document, in a process forked for them, as everywhere.

The worker's own process only waits. A fork server beside it has imported TensorFlow. It serves one document
after another, of this run and the next, until it has been idle for a while.

The code of the specs' folder comes as an archive. Its paths lie below another root there; a spec finds its
data, its code finds the working directory, and messages name files as they do here.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import platform
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import resolve_name
from pathlib import Path

from distributed import Reschedule, Worker, get_worker

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.plain_files import is_installed
from gradcheck_cli.results import CaseResult, FilesRead
from gradcheck_cli.running.find_modules import file_of, find, parse_file
from gradcheck_cli.running.limits import Limits, default_memory, format_size
from gradcheck_cli.running.local_workers import CodePlace, LocalWorkers
from gradcheck_cli.running.run_loop import Ended, Progressed
from gradcheck_cli.serial import map_texts
from gradcheck_cli.spec.case import Case

LIMIT = 64 * 2**20  # bytes; the scheduler holds each folder for as long as a run takes
_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_OWN = Path(__file__).resolve().parents[2]  # each machine has its own gradcheck
_DAY_ONE = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip file


@dataclass(frozen=True)
class CodeFolder:
    """A folder of specs, with the other files of the project that their code imports."""

    digest: str  # its SHA-256
    archive: bytes  # a zip file; its paths are absolute ones without the leading slash
    path: tuple[str, ...]  # further absolute folders on the module path


def pack(cases: Sequence[Case]) -> CodeFolder:
    """Pack what the cases of one folder need: the folder, and what its code imports from elsewhere.

    For a module elsewhere, its whole package is packed. Installed packages aren't: they must be installed on
    the other machine.

    Raises:
        CaseFailedError: it is too large to be sent.
    """
    folder = Path(cases[0].origin.folder)
    inside = folder.resolve()
    data = {(folder / path).resolve() for case in cases for path in _data_paths(case)}
    outside = {
        file
        for file in {*data, *_code_files(cases)}
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


def _data_paths(case: Case) -> list[str]:
    """Return the files that inputs are read from, as the case names them."""
    sources = [tensor.source for tensor in case.tensors if tensor.source.kind == "file"]
    return [str(source.arguments.get("path", "")) for source in sources]


def _code_files(cases: Sequence[Case]) -> Iterator[Path]:
    """Yield the modules that the cases' code imports, as its text says; nothing is imported for it."""
    folders = (cases[0].origin.folder, str(Path.cwd()))
    waiting = []
    for case in cases:
        reference = case.reference and case.reference.function
        code = [ref.target for ref in (case.code.forward, case.code.gradient, reference) if ref]
        forms = [target for argument in case.arguments for target in argument.form.targets]
        waiting += [target.partition(":")[0] for target in code + forms]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        file = None if name in seen else file_of(find(name, folders))
        seen.add(name)
        if file is not None and not is_installed(file):
            yield file
            # Importing a.b runs the __init__.py of a, too.
            waiting += [name.rpartition(".")[0] or name, *_imports(file, name)]


def _imports(file: Path, module: str) -> Iterator[str]:
    """Yield the modules that a file may import anywhere in it."""
    tree = parse_file(file) if file.suffix == ".py" else None
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree or ast.Module([], [])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # it leads out of the package
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("import_module"):
            with suppress(ImportError, ValueError):  # a name that is computed
                yield resolve_name(str(ast.literal_eval(node.args[0])), package)


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
    """Return an archive of files, which is the same for the same files, and its digest."""
    room, target = LIMIT, io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            content = b""
            # A file may be deleted, not plain or unreadable: the code that needs it will say so.
            with suppress(OSError):
                if not file.is_file():
                    continue
                room -= file.stat().st_size
                if room < 0:
                    raise CaseFailedError(
                        "workers",
                        f"{folder}: holds more than {format_size(LIMIT)}, which aren't sent to a cluster "
                        f"(stopped at {file}). Move the specs and their code to a folder of their own.",
                    )
                content = file.read_bytes()
            archive.writestr(zipfile.ZipInfo(str(file).lstrip("/"), _DAY_ONE), content)
    return hashlib.sha256(target.getvalue()).hexdigest(), target.getvalue()


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
    paths = {case.origin.folder, *filter(os.path.isabs, _data_paths(case))}
    return map_texts(case, lambda text: f"{root}{text}" if text in paths else text)  # type: ignore[no-any-return]


TOPIC = "gradcheck"  # the topic of the events with which a worker reports what it has started
_IDLE = 60.0  # an unused fork server ends after this many seconds
_RUNNING = ("running", "paused", "closing_gracefully")  # states in which a worker's tasks go on
_MOST_PRINTED = 2**20  # bytes of a case's output that are sent back


@dataclass(frozen=True)
class DocumentOrder:
    """A document to check."""

    token: str  # identifies this submission; another attempt has another
    document: int  # its index in the run
    cases: tuple[Case, ...]
    limits: Limits  # what a case may use; without a limit on memory, half of the worker's machine
    # the absolute working directory of the machine that sends this, and further folders of modules
    place: CodePlace
    digest: str  # of the code folder


@dataclass(frozen=True)
class Answer:
    """What became of a document on a worker."""

    worker: str  # the worker's address
    failure: str = ""  # why the worker couldn't check the document; empty if it has
    tensorflow: str = ""  # its version there
    results: tuple[CaseResult, ...] = ()  # the result of each case
    printed: dict[int, str] | None = None  # index of a case -> what it printed, if it failed


def check_document(order: DocumentOrder, archive: bytes) -> Answer:
    """Check the cases of a document on the Dask worker that runs this.

    Returns:
        The results; or why this worker can't check anything, whatever the reason.

    Raises:
        Reschedule: the task was cancelled, or this worker must end.
    """
    worker = get_worker()
    report_start(worker, order, host=platform.node())
    try:
        answer = _check(worker, order, archive)
    except Reschedule:
        raise
    except Exception as error:  # noqa: BLE001 (a full disk, no TensorFlow, ...: another worker may do)
        answer = Answer(worker.address, f"{type(error).__name__}: {error}")
    # Whoever reads the answer knows the paths without this worker's root.
    store = _store(worker)
    root = str(store / order.digest)
    prefixes = (root + order.place.directory + "/", root, f"{store}/", f"{worker.local_directory}/")

    def as_sent(text: str) -> str:
        for prefix in prefixes:
            text = text.replace(prefix, "")
        return text

    return map_texts(answer, as_sent)  # type: ignore[no-any-return]


def report_start(worker: Worker, order: DocumentOrder, **what: object) -> None:
    """Tell the sender of the order that a document, or a case of it, has begun; Dask adds its `worker`."""
    told = {"token": order.token, "document": order.document, "name": str(worker.name), **what}
    worker.log_event(TOPIC, told)


def _store(worker: Worker) -> Path:
    return Path(worker.local_directory).resolve() / "gradcheck"


def _check(worker: Worker, order: DocumentOrder, archive: bytes) -> Answer:
    store = _store(worker)
    root = lay_out(order.digest, archive, store)
    place = map_texts(order.place, lambda path: f"{root}{path}")
    Path(place.directory).mkdir(parents=True, exist_ok=True)
    key = worker.get_current_task()
    workers, output = _servers.take(order.limits, store)
    results: dict[int, CaseResult] = {}
    is_done = False
    try:
        for event in workers.run([relocate(case, root) for case in order.cases], place=place):
            if isinstance(event, Progressed) and event.share is None:
                report_start(worker, order, case=event.index)
            elif isinstance(event, Ended):
                results[event.index] = _name_files(event.result, root)
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled" or worker.status.name not in _RUNNING:
                raise Reschedule  # another worker runs it, if it is still wanted
        is_done = True
        return _collect(worker, workers.tensorflow_version, results)
    finally:
        _servers.give(workers, order.limits, output, is_fit=is_done)


def _name_files(result: CaseResult, root: Path) -> CaseResult:
    """Return a result in which the files that were read have their names on the machine that sent them."""
    read = result.seen.read
    if read is None:
        return result
    files, folders = (
        frozenset(path.removeprefix(str(root)) for path in paths) for paths in (read.files, read.folders)
    )
    return result.having_read(FilesRead(files, folders))


def _collect(worker: Worker, tensorflow: str, results: dict[int, CaseResult]) -> Answer:
    """Return the results with what failed cases printed, read from the files that were kept here."""
    printed = {}
    for index, result in results.items():
        output = result.ran.output
        if output is not None and output.file:
            with suppress(OSError), Path(output.file).open("rb") as stream:
                printed[index] = stream.read(_MOST_PRINTED).decode(errors="replace")
            Path(output.file).unlink(missing_ok=True)
            output = replace(output, file="")
        ran = replace(result.ran, output=output, worker=str(worker.name), host=platform.node())
        results[index] = replace(result, ran=ran)
    ordered = tuple(results[index] for index in sorted(results))
    return Answer(worker.address, "", tensorflow, ordered, printed)


class _Servers:
    """The fork servers of this process: those that its threads use, and idle ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[LocalWorkers, tuple[Limits, Path, threading.Timer]] = {}

    def take(self, limits: Limits, store: Path) -> tuple[LocalWorkers, Path]:
        """Return workers with these limits, and the folder for their output."""
        with self._lock:
            for workers, (own_limits, output, timer) in self._idle.items():
                if own_limits == limits:
                    timer.cancel()
                    del self._idle[workers]
                    return workers, output
        output = Path(tempfile.mkdtemp(dir=store, prefix="output-"))
        memory = default_memory() if limits.memory is None else limits.memory
        return LocalWorkers(1, Limits(limits.timeout, memory), output=output), output

    def give(self, workers: LocalWorkers, limits: Limits, output: Path, *, is_fit: bool) -> None:
        """Take workers back. If they are fit, they can be taken again before they are ended."""
        timer = threading.Timer(_IDLE if is_fit else 0.0, self._end, (workers,))
        timer.daemon = True
        with self._lock:
            self._idle[workers] = limits, output, timer
        timer.start()

    def _end(self, workers: LocalWorkers) -> None:
        with self._lock:
            if workers not in self._idle:  # taken a moment ago
                return
            _, output, _ = self._idle.pop(workers)
        workers.close()
        shutil.rmtree(output, ignore_errors=True)


_servers = _Servers()
