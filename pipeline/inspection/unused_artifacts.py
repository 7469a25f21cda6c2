"""Unused artifacts: those on disk that no run to keep, no pushed version and no blessed model depends on."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from components.errors import InputError, MachineError
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.maintenance import mark_deleted
from pipeline.core.metadata.store import Artifact, Run, Store
from pipeline.inspection import lineage, run_history


@dataclass(frozen=True)
class Unused:
    """An artifact that can be removed.

    Attributes:
      artifact: the artifact.
      bytes: size of all files in its folder.
    """

    artifact: Artifact
    bytes: int


def unused(store: Store, artifacts: Path, pipeline: str, keep: int, versions: Collection[str]) -> list[Unused]:
    """Returns the artifacts of a pipeline that can be removed, oldest first; changes nothing.

    These are retained: the inputs and outputs of the newest runs, including those from the cache; the lineage of each
    pushed version that still exists; the two latest blessed models, one of which is the baseline of the next run, and
    their lineage; and every artifact outside of the pipeline's folder.

    Args:
      store: the pipeline's metadata.
      artifacts: the folder that TFX calls the pipeline root.
      pipeline: the pipeline's name.
      keep: number of newest runs to retain.
      versions: the pushed versions that exist.

    Raises:
      InputError: a run is active.
    """
    runs = store.runs(pipeline)
    _check_no_active_run(store, artifacts.parent / "logs", pipeline)
    retained = _of_runs(store, runs[:keep]) | _of_models(store, versions)
    by_id = store.artifacts_by_id(_of_runs(store, runs))
    retained_folders = {by_id[number].uri for number in retained}
    removable = [
        each
        for each in by_id.values()
        if each.id not in retained and Path(each.uri).is_dir() and _is_below(each.uri, artifacts)
    ]
    # Two artifacts may share a folder.
    return [Unused(each, _bytes(Path(each.uri))) for each in removable if not _overlaps(each.uri, retained_folders)]


def remove(location: Location, artifacts: Iterable[Unused]) -> None:
    """Marks artifacts as DELETED, then removes their folders; after an interruption the next call continues.

    Raises:
      MachineError: a folder cannot be removed.
    """
    artifacts = list(artifacts)
    mark_deleted(location, (each.artifact.id for each in artifacts))
    for each in artifacts:
        try:
            shutil.rmtree(each.artifact.uri)
        except OSError as error:
            raise MachineError(
                f"{each.artifact.uri} cannot be removed: {error.strerror or error}",
                "give this user the permission to remove it, then call gc again: it continues where it stopped",
            ) from error


def _check_no_active_run(store: Store, logs: Path, pipeline: str) -> None:
    active = next(run_history.list_runs(store, logs, pipeline, newest=1, states=("running",)), None)
    if active:
        raise InputError(
            f"gc: expected no active run, received run {active.run}, which is running and may use these artifacts",
            "wait until the run has ended",
        )


def _of_runs(store: Store, runs: Collection[Run]) -> set[int]:
    executions = store.executions(*(run.name for run in runs))
    return {event.artifact for event in store.events(each.id for each in executions)}


def _of_models(store: Store, versions: Collection[str]) -> set[int]:
    """Returns the pushed versions and the latest blessed models, with their lineage."""
    pushed = [each.id for number in versions for each in store.artifacts_with("PushedModel", "pushed_version", number)]
    blessings = (each for each in store.newest_artifacts("ModelBlessing") if each.properties.get("blessed"))
    # Two: a run whose own model is the latest one is compared with the one before.
    blessed = [each.id for each in blessings][:2]
    retained: set[int] = set()
    for number in (*pushed, *blessed):
        if number not in retained:
            retained |= set(lineage.trace(store, number, down=False).artifacts)
    return retained


def _is_below(uri: str, folder: Path) -> bool:
    # Resolved, because a symbolic link or `..` may lead outside of the folder.
    return folder.resolve() in Path(uri).resolve().parents


def _overlaps(uri: str, folders: Collection[str]) -> bool:
    """Whether the folder is one of `folders`, contains one, or is in one."""
    path = Path(uri)
    return uri in folders or any(Path(other).is_relative_to(path) or path.is_relative_to(other) for other in folders)


def _bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
