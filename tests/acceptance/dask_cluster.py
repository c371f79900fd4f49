"""A Dask cluster of real processes on this machine, started as Dask's documentation starts one."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTS = 120  # seconds for the processes to be there; a busy machine needs some
_MARK = "GRADCHECK_CLUSTER"


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def parent(pid):
    """Return the parent of a process; 0 where there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _seconds(pid):
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _stat(pid):
    """Return what the kernel tells of a process, from its state on; nothing where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


_OF_THE_RUN = ("duration_s", "parts_s", "host", "worker")


def without_times(report):
    """Return a report without what may differ between a cluster and this machine."""
    if isinstance(report, dict):
        kept = {key: value for key, value in report.items() if key not in _OF_THE_RUN}
        return {key: without_times(value) for key, value in kept.items()}
    return [without_times(one) for one in report] if isinstance(report, list) else report


def environment(folder, *, without=(), **versions):
    """Make a folder of the packages that there are, but for some, or with a package's version changed.

    Returns:
        The folder, for PYTHONPATH of a `python -S`, which has no packages of its own.
    """
    folder.mkdir()
    places = [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    for entry in (one for place in (ROOT, *places) if place.is_dir() for one in place.iterdir()):
        name = entry.name.lower()
        if not name.startswith(tuple(without)) and not (folder / entry.name).exists():
            (folder / entry.name).symlink_to(entry)
    for package, version in versions.items():
        (found,) = folder.glob(f"{package}-*.dist-info")
        found.unlink()
        changed = folder / f"{package}-{version}.dist-info"
        changed.mkdir()
        (changed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return str(folder)


class Cluster:
    """A `dask scheduler`, and `dask worker` processes that are added to it.

    Attributes:
        address: what `--on` takes.
    """

    def __init__(self, folder, *, workers=0, **settings):
        """Start the scheduler and so many workers, in a folder where no code lies.

        Args:
            folder: for logs and scratch files.
            workers: how many to start with.
            settings: Dask's, as environment variables without `DASK_DISTRIBUTED__`.
        """
        self._folder, self._mark = Path(folder), uuid.uuid4().hex
        self._folder.mkdir(parents=True, exist_ok=True)
        self._tcp = f"127.0.0.1:{_free_port()}"
        self.address = f"dask://{self._tcp}"
        self._settings = {f"DASK_DISTRIBUTED__{name}": value for name, value in settings.items()}
        self._workers = 0
        self._processes = []
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", self._tcp.rpartition(":")[2]
        )
        for _ in range(workers):
            self.add_worker()
        try:
            self.wait_for(workers)
        except BaseException:
            self.close()
            raise

    def add_worker(self, *, options=(), python=(sys.executable,), **environment):
        """Start another `dask worker` of one thread, and return its nanny, or itself if it has none."""
        self._workers += 1
        name = f"w{self._workers}"
        scratch = ("--local-directory", str(self._folder / name))
        own = ("--nthreads", "1", "--name", name, *scratch)
        return self._start("worker", self._tcp, *own, *options, python=python, **environment)

    def _start(self, what, *options, python=(sys.executable,), **environment):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        given = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", **self._settings, **environment}
        log = (self._folder / f"{what}{len(self._processes)}.log").open("w")
        process = subprocess.Popen(
            [*python, "-m", "dask", what, "--no-dashboard", *options],
            cwd=self._folder,
            env={**os.environ, **given, _MARK: self._mark},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self._processes.append(process)
        return process

    def client(self):
        """Return a client of its own, to look at the cluster with."""
        from distributed import Client

        return Client(self._tcp, timeout=STARTS, set_as_default=False)

    def wait_for(self, workers):
        """Wait until there are so many workers, no more and no less."""
        end = time.monotonic() + STARTS
        with self.client() as client:
            while len(client.nthreads()) != workers:
                if time.monotonic() > end:
                    raise TimeoutError(f"{len(client.nthreads())} workers, not {workers}:\n{self.log()}")
                time.sleep(0.1)

    def worker_pids(self):
        """Return the processes of the workers themselves, which their nannies start anew if they die."""
        nannies = {process.pid for process in self._processes}
        return [pid for pid in self.left("spawn_main") if parent(pid) in nannies]

    def seconds(self, *pids):
        """Return the processor time of processes and of those that have ended below them; default of all."""
        return sum(_seconds(pid) for pid in pids or self.left(""))

    def left(self, name="fork_server"):
        """Return the processes of this cluster, whoever started them, with a word in their command line."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone meanwhile
                command = (entry / "cmdline").read_bytes()
                if (
                    name.encode() in command
                    and f"{_MARK}={self._mark}".encode() in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
        return found

    def wait_until_gone(self, name, seconds=STARTS):
        """Wait until no such process is left; return those that are after so many seconds."""
        end = time.monotonic() + seconds
        while (found := self.left(name)) and time.monotonic() < end:
            time.sleep(0.2)
        return found

    def log(self):
        """Return what all processes have logged."""
        return "".join(file.read_text(errors="replace") for file in sorted(self._folder.glob("*.log")))

    def close(self):
        """Kill all processes, those of fork servers too."""
        for pid in [*(process.pid for process in self._processes), *self.left("")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def __enter__(self):
        """Return the cluster."""
        return self

    def __exit__(self, *_):
        """Close it."""
        self.close()
