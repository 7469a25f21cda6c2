"""Writes executions and artifacts into a metadata store in TFX's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Barrier

from ml_metadata.proto import metadata_store_pb2 as proto

from pipeline.core.metadata.connection import connect
from pipeline.core.metadata.location import Location

_barrier: Barrier


class Writer:
    """Writes runs into a new store in TFX's layout."""

    def __init__(self, location: Location, pipeline: str = "toy") -> None:
        self.store = connect(location)
        run = proto.ContextType(name="pipeline_run", properties={"config": proto.STRING})
        self.types = {
            "pipeline": self.store.put_context_type(proto.ContextType(name="pipeline")),
            "pipeline_run": self.store.put_context_type(run, can_add_fields=True),
            "node": self.store.put_context_type(proto.ContextType(name="node")),
        }
        self.pipeline = self._context("pipeline", pipeline)

    def _context(self, kind: str, name: str) -> proto.Context:
        context = self.store.get_context_by_type_and_name(kind, name)
        if context is None:
            [found_id] = self.store.put_contexts([proto.Context(type_id=self.types[kind], name=name)])
            context = proto.Context(id=found_id, type_id=self.types[kind], name=name)
        return context

    def run(self, name: str, config: str | None = None) -> proto.Context:
        """Return a run's context, with its config; create it if it does not exist."""
        known = self.store.get_context_by_type_and_name("pipeline_run", name) is not None
        context = self._context("pipeline_run", name)
        if not known:
            link = proto.ParentContext(parent_id=self.pipeline.id, child_id=context.id)
            self.store.put_parent_contexts([link])
        if config is not None:
            context.properties["config"].string_value = config
            self.store.put_contexts([context])
        return context

    def execution(
        self,
        run: str,
        node: str,
        state: str = "COMPLETE",
        outputs: Sequence[proto.Artifact] = (),
        event: str = "OUTPUT",
        inputs: Mapping[str, proto.Artifact] | None = None,
        parameters: Mapping[str, int | str] | None = None,
        keys: Sequence[str] = (),
    ) -> int:
        """Record an execution; its artifacts get their numbers, and its outputs these keys, or out0 and so on."""
        contexts = [self.pipeline, self.run(run), self._context("node", f"{self.pipeline.name}.{node}")]
        kind = self.store.put_execution_type(proto.ExecutionType(name=node))
        execution = proto.Execution(type_id=kind, last_known_state=proto.Execution.State.Value(state))
        for name, value in (parameters or {}).items():
            _set(execution.custom_properties[name], value)
        events = [(artifact, _event(key, "INPUT")) for key, artifact in (inputs or {}).items()]
        names = keys or [f"out{index}" for index in range(len(outputs))]
        events += [(artifact, _event(key, event)) for key, artifact in zip(names, outputs, strict=True)]
        execution_id, artifact_ids, _ = self.store.put_execution(execution, events, contexts)
        for (artifact, _), number in zip(events, artifact_ids, strict=True):
            artifact.id = number
        return int(execution_id)

    def artifact(self, kind: str, uri: str = "", state: str = "LIVE", **properties: int | str) -> proto.Artifact:
        """Return an artifact that an execution can output."""
        type_id = self.store.put_artifact_type(proto.ArtifactType(name=kind))
        artifact = proto.Artifact(type_id=type_id, uri=uri, state=proto.Artifact.State.Value(state))
        for name, value in properties.items():
            _set(artifact.custom_properties[name], value)
        return artifact


def _event(key: str, kind: str) -> proto.Event:
    event = proto.Event(type=proto.Event.Type.Value(kind))
    event.path.steps.add().key = key
    event.path.steps.add().index = 0
    return event


def _set(field: proto.Value, value: int | str) -> None:
    if isinstance(value, int):
        field.int_value = value
    else:
        field.string_value = value


def take_barrier(barrier: Barrier) -> None:
    """Receive the barrier of `write_side_by_side` in this process."""
    global _barrier
    _barrier = barrier


def write_side_by_side(location: Location, run: str) -> list[int]:
    """Write a run of 20 nodes, each at the same time as the other processes write theirs; return the executions.

    The processes share the types; every run belongs to another pipeline.
    """
    try:
        writer, written = Writer(location, run), []
        for number in range(20):
            _barrier.wait()
            model = writer.artifact("Model", f"/{run}/{number}")
            written.append(writer.execution(run, f"Node{number}", outputs=[model]))
            assert len(writer.store.get_executions_by_id(list(range(1, written[-1] + 1)))) >= len(written)
    except BaseException:
        _barrier.abort()
        raise
    return written


def read_side_by_side(location: Location, run: str, artifact_ids: Sequence[int]) -> list[int]:
    """Put an execution that reads each artifact, at the same time as the other processes; return the executions.

    All processes write nodes of one pipeline, whose contexts exist: each artifact gets the same attributions from all.
    """
    try:
        writer, execution_ids = Writer(location, "shared"), []
        for number, artifact in enumerate(writer.store.get_artifacts_by_id(artifact_ids)):
            _barrier.wait()
            execution_ids.append(writer.execution(run, f"Node{number}", inputs={"a": artifact}))
    except BaseException:
        _barrier.abort()
        raise
    return execution_ids
