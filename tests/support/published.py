"""Enters a run into ML Metadata as TFX does it, without running it: what the Trainer needs is said to be there."""

from __future__ import annotations

from pathlib import Path

from tfx.orchestration.portable import execution_publish_utils
from tfx.orchestration.portable.mlmd import context_lib
from tfx.types import artifact_utils

from pipeline.authoring.config import Config
from pipeline.orchestration.compiler import compile_pipeline
from pipeline.orchestration.node import load, metadata_of, nodes_of, store_of


def publish(
    config: Config,
    run: str,
    nodes: tuple[str, ...] = ("SchemaGen", "StatisticsGen", "Transform"),
    root: str = "/shared",
) -> None:
    """A run in which these nodes ended well.

    Args:
      config: the pipeline.
      run: the run's id.
      nodes: their outputs are entered.
      root: the outputs of a node lie at <root>/<run>/<output's key>.
    """
    pipeline = load(compile_pipeline(config), run)
    store = store_of(pipeline)
    assert isinstance(store, Path)
    store.parent.mkdir(parents=True, exist_ok=True)
    with metadata_of(store) as handle:
        for name in nodes:
            node = nodes_of(pipeline)[name]
            outputs = {}
            for key, spec in node.outputs.outputs.items():
                artifact = artifact_utils.deserialize_artifact(spec.artifact_spec.type)
                artifact.uri = f"{root}/{run}/{key}"
                if artifact.type_name in ("Examples", "ExampleStatistics"):
                    artifact.split_names = artifact_utils.encode_split_names(["train", "eval"])
                outputs[key] = [artifact]
            contexts = context_lib.prepare_contexts(handle, node.contexts)
            execution = execution_publish_utils.register_execution(handle, node.node_info.type, contexts)
            execution_publish_utils.publish_succeeded_execution(handle, execution.id, contexts, outputs)
