"""What takes up disk, and no run that is to be kept and no pushed version needs."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as proto

from components.errors import InputError, MachineError
from pipeline.metadata import history, lineage
from pipeline.metadata.connection import writable
from pipeline.metadata.database import Location
from pipeline.metadata.store import Artifact, Run, Store


@dataclass(frozen=True)
class Unused:
    """An artifact that can go.

    Attributes:
      artifact: it.
      bytes: of all files in its folder.
    """

    artifact: Artifact
    bytes: int


def unused(store: Store, artifacts: Path, pipeline: str, keep: int, versions: Collection[str]) -> list[Unused]:
    """The artifacts of a pipeline that can go, oldest first; nothing is changed.

    What stays: all that the newest runs have read or made, also where it came from the cache; all that went into a
    pushed version that is still there; the two latest blessed models, one of which the next run is compared with, and
    all that went into them; and whatever does not lie below the pipeline's own folder.

    Args:
      store: its metadata.
      artifacts: the folder that TFX calls the pipeline root.
      pipeline: its name.
      keep: how many of the newest runs stay whole.
      versions: the pushed ones that are there.

    Raises:
      InputError: a run is going on.
    """
    runs = store.runs(pipeline)
    _check_ended(store, artifacts.parent / "logs", pipeline)
    kept = _of_runs(store, runs[:keep]) | _of_models(store, versions)
    all_of_them = _of_runs(store, runs)
    found = store.artifacts_by_id(all_of_them)
    folders = {found[number].uri for number in kept}
    going = [
        each
        for each in found.values()
        if each.id not in kept and Path(each.uri).is_dir() and _is_below(each.uri, artifacts)
    ]
    # Two artifacts may share a folder.
    return [Unused(each, _bytes(Path(each.uri))) for each in going if not _touches(each.uri, folders)]


def remove(location: Location, found: Iterable[Unused]) -> None:
    """Marks artifacts as DELETED, then removes their folders; broken off in between, it is gone on with next time.

    Raises:
      MachineError: a folder cannot be removed.
    """
    several = list(found)
    store = writable(location)
    told = store.get_artifacts_by_id([each.artifact.id for each in several])
    for artifact in told:
        artifact.state = proto.Artifact.DELETED
    if told:
        store.put_artifacts(told)
    for each in several:
        try:
            shutil.rmtree(each.artifact.uri)
        except OSError as error:
            raise MachineError(
                f"{each.artifact.uri} cannot be removed: {error.strerror or error}",
                "give this user the right to remove it, then call gc again: it goes on where it stopped",
            ) from error


def _check_ended(store: Store, logs: Path, pipeline: str) -> None:
    going_on = next(history.rows(store, logs, pipeline, newest=1, states=("running",)), None)
    if going_on:
        raise InputError(
            f"run {going_on.run} is still going on, and may be about to use what is there", "wait for its end"
        )


def _of_runs(store: Store, runs: Collection[Run]) -> set[int]:
    executions = store.executions(*(run.name for run in runs))
    return {event.artifact for event in store.events(each.id for each in executions)}


def _of_models(store: Store, versions: Collection[str]) -> set[int]:
    """What went into the pushed versions and into the latest blessed models, and they themselves."""
    pushed = [each.id for number in versions for each in store.artifacts_with("PushedModel", "pushed_version", number)]
    blessings = (each for each in store.newest_artifacts("ModelBlessing") if each.properties.get("blessed"))
    # Two: a run whose own model is the latest one is compared with the one before.
    blessed = [each.id for each in blessings][:2]
    needed: set[int] = set()
    for number in (*pushed, *blessed):
        if number not in needed:
            needed |= set(lineage.trace(store, number, down=False).artifacts)
    return needed


def _is_below(uri: str, folder: Path) -> bool:
    # A link or a `..` may lead out of it.
    return folder.resolve() in Path(uri).resolve().parents


def _touches(uri: str, folders: Collection[str]) -> bool:
    """Whether it is one of the folders, holds one, or lies in one."""
    path = Path(uri)
    return uri in folders or any(Path(other).is_relative_to(path) or path.is_relative_to(other) for other in folders)


def _bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
