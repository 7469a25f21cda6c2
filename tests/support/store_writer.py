"""Puts executions and artifacts into a metadata store, as TFX lays them out."""

from __future__ import annotations

from pathlib import Path

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto


class Writer:
    """Puts runs into a new store, as TFX lays them out."""

    def __init__(self, path: Path) -> None:
        self.config = proto.ConnectionConfig()
        self.config.sqlite.filename_uri = str(path)
        self.config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        self.store = mlmd.MetadataStore(self.config)
        self.types = {
            name: self.store.put_context_type(proto.ContextType(name=name))
            for name in ("pipeline", "pipeline_run", "node")
        }
        self.pipeline = self._context("pipeline", "toy")

    def _context(self, kind: str, name: str) -> proto.Context:
        found = self.store.get_context_by_type_and_name(kind, name)
        if found is None:
            [found_id] = self.store.put_contexts([proto.Context(type_id=self.types[kind], name=name)])
            found = proto.Context(id=found_id, type_id=self.types[kind], name=name)
        return found

    def configure(self, run: str, config: str) -> None:
        """Writes a run's config down, as text of JSON."""
        context = self.store.get_context_by_type_and_name("pipeline_run", run)
        context.custom_properties["config"].string_value = config
        self.store.put_contexts([context])

    def execution(
        self,
        run: str,
        node: str,
        state: str = "COMPLETE",
        outputs: tuple[proto.Artifact, ...] = (),
        event: str = "OUTPUT",
    ) -> int:
        known = self.store.get_context_by_type_and_name("pipeline_run", run) is not None
        contexts = [self.pipeline, self._context("pipeline_run", run), self._context("node", f"toy.{node}")]
        if not known:
            self.store.put_parent_contexts([proto.ParentContext(parent_id=self.pipeline.id, child_id=contexts[1].id)])
        kind = self.store.put_execution_type(proto.ExecutionType(name=node))
        execution = proto.Execution(type_id=kind, last_known_state=proto.Execution.State.Value(state))
        pairs = []
        for index, artifact in enumerate(outputs):
            one = proto.Event(type=proto.Event.Type.Value(event))
            one.path.steps.add().key = f"out{index}"
            one.path.steps.add().index = 0
            pairs.append((artifact, one))
        execution_id, _, _ = self.store.put_execution(execution, pairs, contexts)
        return execution_id

    def artifact(self, kind: str, uri: str = "", state: str = "LIVE", **properties: int | str) -> proto.Artifact:
        type_id = self.store.put_artifact_type(proto.ArtifactType(name=kind))
        artifact = proto.Artifact(type_id=type_id, uri=uri, state=proto.Artifact.State.Value(state))
        for key, value in properties.items():
            if isinstance(value, int):
                artifact.custom_properties[key].int_value = value
            else:
                artifact.custom_properties[key].string_value = value
        return artifact
