"""Runs cases on a Dask cluster: `--on`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck_cli import optional

if TYPE_CHECKING:
    from gradcheck_cli.running.limits import Limits
    from gradcheck_cli.running.run_loop import Workers

HOOKS = {"start_in_cluster": ":start_in_cluster"}


def start_in_cluster(
    address: str, limits: Limits, settings: Mapping[str, Any], output: Path | None
) -> Workers:
    """Start workers on a cluster; see `hooks.start_in_cluster`."""
    dask = optional.load(f"{__name__}.dask_workers", "--on", "distributed")
    skew, isolate = settings["allow_version_skew"], settings["isolate"]
    workers: Workers = dask.DaskWorkers(address, limits, allows_skew=skew, isolate=isolate, output=output)
    return workers
