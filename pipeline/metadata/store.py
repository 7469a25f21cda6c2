"""Reads runs, executions and artifacts from ML Metadata, as small records that need no protobuf to understand."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto

from components.errors import MachineError

ConnectionConfig = proto.ConnectionConfig
"""Where a store is: an SQLite file, or a database server."""
RUNNING = proto.Execution.RUNNING
"""The state of an execution that a node is at work on."""

RUN_CONTEXT = "pipeline_run"
NODE_CONTEXT = "node"
PIPELINE_CONTEXT = "pipeline"

_OPEN_ATTEMPTS = 10
_OPEN_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Execution:
    """One node in one run."""

    id: int
    node: str
    state: str
    """ML Metadata's own word: NEW, RUNNING, COMPLETE, CACHED, FAILED or CANCELED."""
    started: float
    """Seconds since the epoch."""
    updated: float

    @property
    def succeeded(self) -> bool:
        """Whether its outputs can be relied upon."""
        return self.state in ("COMPLETE", "CACHED")


@dataclass(frozen=True)
class Artifact:
    """Something a node made: where it lies, and what is known about it."""

    id: int
    type: str
    uri: str
    state: str
    properties: dict[str, int | float | str]
    """The type's own properties and the custom ones, together."""

    @property
    def splits(self) -> list[str]:
        """The names of its splits, for a type that has them."""
        names = str(self.properties.get("split_names", "")).strip("[]")
        return [name.strip().strip('"') for name in names.split(",") if name.strip()]


class Store:
    """A metadata store, opened for reading.

    Args:
      where: an SQLite file that exists, or ML Metadata's own connection config.
    """

    def __init__(self, where: Path | proto.ConnectionConfig) -> None:
        self._mlmd = connect(read_only(where) if isinstance(where, Path) else where)

    def runs(self, pipeline: str) -> list[str]:
        """The ids of a pipeline's runs, newest first."""
        context = self._mlmd.get_context_by_type_and_name(PIPELINE_CONTEXT, pipeline)
        if context is None:
            return []
        run_type = self._mlmd.get_context_type(RUN_CONTEXT).id
        children = self._mlmd.get_children_contexts_by_context(context.id)
        runs = [child for child in children if child.type_id == run_type]
        return [run.name for run in sorted(runs, key=lambda run: (run.create_time_since_epoch, run.id), reverse=True)]

    def executions(self, run: str) -> list[Execution]:
        """All executions of a run, oldest first."""
        context = self._mlmd.get_context_by_type_and_name(RUN_CONTEXT, run)
        if context is None:
            return []
        found = [self._execution(each) for each in self._mlmd.get_executions_by_context(context.id)]
        return sorted(found, key=lambda execution: execution.id)

    def execution(self, run: str, node: str) -> Execution | None:
        """The newest execution of a node in a run, if there is one."""
        return next((each for each in reversed(self.executions(run)) if each.node == node), None)

    def outputs(self, execution: Execution) -> dict[str, list[Artifact]]:
        """What an execution published (or took from the cache), by output key."""
        events = [
            event
            for event in self._mlmd.get_events_by_execution_ids([execution.id])
            if event.type == proto.Event.OUTPUT
        ]
        artifacts = {artifact.id: artifact for artifact in self._artifacts(event.artifact_id for event in events)}
        outputs: dict[str, list[Artifact]] = {}
        for event in events:
            outputs.setdefault(event.path.steps[0].key, []).append(artifacts[event.artifact_id])
        return outputs

    def artifacts(self, run: str, type_name: str) -> list[Artifact]:
        """What the run's own successful nodes made of one type, oldest first; what a resolver found is not among it."""
        made = [
            artifact
            for execution in self.executions(run)
            if execution.succeeded
            for artifacts in self.outputs(execution).values()
            for artifact in artifacts
        ]
        # By id: a partial run enters the executions that it reuses in any order.
        return sorted((each for each in made if each.type == type_name), key=lambda artifact: artifact.id)

    def _execution(self, execution: proto.Execution) -> Execution:
        contexts = self._mlmd.get_contexts_by_execution(execution.id)
        # A node's context is called "<pipeline>.<node>".
        names = [context.name for context in contexts if context.type == NODE_CONTEXT]
        return Execution(
            id=execution.id,
            node=names[0].split(".", 1)[-1] if names else "",
            state=proto.Execution.State.Name(execution.last_known_state),
            started=execution.create_time_since_epoch / 1000,
            updated=execution.last_update_time_since_epoch / 1000,
        )

    def _artifacts(self, ids: Iterable[int]) -> list[Artifact]:
        return [
            Artifact(
                id=artifact.id,
                type=artifact.type,
                uri=artifact.uri,
                state=proto.Artifact.State.Name(artifact.state),
                properties={**_plain(artifact.properties), **_plain(artifact.custom_properties)},
            )
            for artifact in self._mlmd.get_artifacts_by_id(sorted(set(ids)))
        ]


def read_only(path: Path) -> proto.ConnectionConfig:
    """A connection to an SQLite file that can change nothing, and creates nothing."""
    config = proto.ConnectionConfig()
    config.sqlite.filename_uri = str(path)
    config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READONLY
    return config


def connect(config: proto.ConnectionConfig) -> Any:
    """An open `MetadataStore`.

    Raises:
      MachineError: it cannot be opened, also not after a few attempts.
    """
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            return mlmd.MetadataStore(config)
        except (RuntimeError, mlmd.errors.StatusError) as error:
            # The very first nodes of a new store create its tables side by side, and one of them has to wait.
            if attempt == _OPEN_ATTEMPTS - 1:
                raise MachineError(
                    f"the metadata store {config.sqlite.filename_uri or ''} cannot be opened: {error}",
                    "move it away (its runs are forgotten then), or name another folder with --output DIR",
                ) from error
            time.sleep(_OPEN_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _plain(properties: Any) -> dict[str, int | float | str]:
    """Properties as plain values; a structured one stays away."""
    values: dict[str, int | float | str] = {}
    for key, value in properties.items():
        kind = value.WhichOneof("value")
        if kind in ("int_value", "double_value", "string_value"):
            values[key] = getattr(value, kind)
    return values
