"""Finds and removes unused artifacts: no retained run, pushed version or blessed model depends on them."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from components.base.errors import InputError, MachineError
from components.pusher.candidate import APPROVAL, PENDING
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.maintenance import mark_deleted
from pipeline.core.metadata.store import Artifact, Run, Store
from pipeline.inspection import lineage, run_history


@dataclass(frozen=True)
class Unused:
    """An artifact that can be removed.

    Attributes:
      artifact: The artifact.
      bytes: Total size of the files in its folder.
    """

    artifact: Artifact
    bytes: int


def find_unused(store: Store, artifacts: Path, pipeline: str, keep: int, versions: Collection[str]) -> list[Unused]:
    """Return the artifacts of a pipeline that can be removed, the oldest first. Nothing is removed yet.

    The following artifacts are retained:

    - The inputs and outputs of the newest runs, including cached artifacts.
    - The lineage of all pushed versions that still exist.
    - Models that wait for an approval and are newer than the latest pushed model, and their lineage.
    - The two latest blessed models and their lineage. The next run needs one of them as its baseline.
    - Artifacts outside the pipeline's folder.

    Args:
      store: The store with the pipeline's metadata.
      artifacts: Folder of the pipeline's artifacts, which TFX calls the pipeline root.
      pipeline: Name of the pipeline.
      keep: Number of newest runs to retain.
      versions: Numbers of the pushed versions that exist.

    Raises:
      InputError: A run is active.
    """
    runs = store.runs(pipeline)
    _check_no_active_run(store, artifacts.parent / "logs", pipeline)
    retained = _collect_artifacts_of_runs(store, runs[:keep]) | _collect_artifacts_of_models(store, versions)
    by_id = store.artifacts_by_id(_collect_artifacts_of_runs(store, runs))
    retained_folders = {by_id[number].uri for number in retained}
    removable = [
        artifact
        for artifact in by_id.values()
        if artifact.id not in retained and Path(artifact.uri).is_dir() and _is_below(artifact.uri, artifacts)
    ]
    # Two artifacts may share a folder, so compare the folders as well.
    return [
        Unused(artifact, _measure_size(Path(artifact.uri)))
        for artifact in removable
        if not _overlaps(artifact.uri, retained_folders)
    ]


def remove(location: Location, artifacts: Iterable[Unused]) -> None:
    """Mark artifacts as DELETED, then remove their folders. After an interruption, the next call continues.

    Raises:
      MachineError: A folder cannot be removed.
    """
    removable = list(artifacts)
    mark_deleted(location, (unused.artifact.id for unused in removable))
    for unused in removable:
        try:
            shutil.rmtree(unused.artifact.uri)
        except OSError as error:
            raise MachineError(
                f"{unused.artifact.uri} cannot be removed: {error.strerror or error}",
                "allow this user to remove the folder, then run gc again; it continues where it stopped",
            ) from error


def _check_no_active_run(store: Store, logs: Path, pipeline: str) -> None:
    active = next(run_history.list_runs(store, logs, pipeline, newest=1, states=("running",)), None)
    if active:
        raise InputError(
            f"gc: expected no active run, received run {active.run}, which is running and may use these artifacts",
            "wait until the run has ended",
        )


def _collect_artifacts_of_runs(store: Store, runs: Collection[Run]) -> set[int]:
    executions = store.executions(*(run.name for run in runs))
    return {event.artifact for event in store.events(execution.id for execution in executions)}


def _collect_artifacts_of_models(store: Store, versions: Collection[str]) -> set[int]:
    """Return the IDs of the pushed versions, the candidates and the latest blessed models, with their lineage."""
    pushed = [
        artifact.id
        for version in versions
        for artifact in store.artifacts_with("PushedModel", "pushed_version", version)
    ]
    # An older candidate than the latest pushed model is superseded.
    waiting = [artifact.id for artifact in store.artifacts_with("PushedModel", APPROVAL, PENDING)]
    waiting = [number for number in waiting if number > max(pushed, default=0)]
    blessings = store.newest_artifacts("ModelBlessing")
    # Retain two blessed models. If the latest one comes from the cache of a run, the other is the baseline of that run.
    blessed = [blessing.id for blessing in blessings if blessing.properties.get("blessed")][:2]
    retained: set[int] = set()
    for number in (*pushed, *waiting, *blessed):
        if number not in retained:
            retained |= set(lineage.trace(store, number, down=False).artifacts)
    return retained


def _is_below(uri: str, folder: Path) -> bool:
    # Resolve the paths, because a symbolic link or `..` may lead outside the folder.
    return folder.resolve() in Path(uri).resolve().parents


def _overlaps(uri: str, folders: Collection[str]) -> bool:
    """Return whether a folder is one of `folders`, contains one of them, or is inside one of them."""
    path = Path(uri)
    return uri in folders or any(Path(folder).is_relative_to(path) or path.is_relative_to(folder) for folder in folders)


def _measure_size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
