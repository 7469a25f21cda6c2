"""How the examples between nodes are stored: as columns, unless a node of the pipeline reads only TFRecords."""

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
    """Return the nodes that read examples only from TFRecords.

    A node of the user's own may be written for stock TFX, so it counts unless the config chooses the format.
    """
    nodes: tuple[Columnar, ...] = ("StatisticsGen", "Transform")
    stock = [name for name in nodes if not config.runtime.is_vectorised(name)]
    own = [node.name for node in config.nodes if not _EXAMPLES.isdisjoint(node.inputs.values())]
    chosen = config.data.examples_format != "auto"
    return [*stock, *(["Trainer"] if config.model.run_fn else []), *([] if chosen else own)]
