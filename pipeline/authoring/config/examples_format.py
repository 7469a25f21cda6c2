"""Chooses the format of examples: Parquet, unless a node of the pipeline can only read TFRecords."""

from __future__ import annotations

from typing import Literal

from pipeline.authoring.config.root import Config
from pipeline.authoring.config.runtime import Columnar

_EXAMPLES = frozenset({"ExampleGen.examples", "Transform.transformed_examples"})


def examples_format(config: Config) -> Literal["parquet", "tfrecord"]:
    """Return the format of the pipeline's Examples artifacts."""
    chosen = config.data.examples_format
    if chosen != "auto":
        return chosen
    return "tfrecord" if tfrecord_readers(config) else "parquet"


def tfrecord_readers(config: Config) -> list[str]:
    """Return the names of the nodes that can only read examples from TFRecords.

    A component of the user may be written for stock TFX. It is therefore included, unless the config sets the format.
    """
    nodes: tuple[Columnar, ...] = ("StatisticsGen", "Transform")
    stock = [name for name in nodes if not config.runtime.is_vectorised(name)]
    user_nodes = [node.name for node in config.nodes if not _EXAMPLES.isdisjoint(node.inputs.values())]
    chosen = config.data.examples_format != "auto"
    return [*stock, *(["Trainer"] if config.model.run_fn else []), *([] if chosen else user_nodes)]
