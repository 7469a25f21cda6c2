"""Compute the sample of a transform with the transform graph, if this project's executor does not write the rows.

TFX's executor writes transformed rows in an unstable order, so that a raw row cannot be matched to its transformed row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types

from components.data import skew_sample
from components.data.example_artifacts import examples_of
from components.data.skew_sample import Sample
from components.features import preprocessing
from components.features.plan import FeaturePlan
from components.transform import transform_graph
from components.transform.raw_batches import RawBatches
from components.transform.transform_graph import TransformGraph

_BATCHES = 8
"""Maximum number of batches to read per split."""


def write(
    plan: FeaturePlan, schema: schema_pb2.Schema, examples: Sequence[types.Artifact], splits: Sequence[str], folder: str
) -> None:
    """Write a sample of the first batches of the splits; see `components.data.skew_sample`.

    Args:
      plan: Plan with the declared operations.
      schema: Schema of the raw features.
      examples: Artifacts of raw examples.
      splits: Names of the splits that are transformed.
      folder: Folder of the transform graph.

    Raises:
      InputError: If the rows are not tf.Examples.
      MachineError: If the examples cannot be read.
    """
    raw = RawBatches(schema, preprocessing.columns_read(plan))
    graph = TransformGraph(transform_graph.identify(folder))
    samples = [
        sample
        for artifact in examples
        for split in splits
        for sample in itertools.islice(_samples(artifact, split, raw, graph), _BATCHES)
    ]
    if samples:
        skew_sample.write(skew_sample.merge(samples), folder)


def _samples(artifact: types.Artifact, split: str, raw: RawBatches, graph: TransformGraph) -> Iterator[Sample]:
    examples = examples_of(artifact, split, raw.schema)
    for path in examples.paths:
        for file_range in examples.ranges(path):
            for number, batch in enumerate(examples.read(file_range)):
                if batch.num_rows:
                    keys = skew_sample.draw_keys(path, file_range.first, number, batch.num_rows)
                    selected = skew_sample.select(keys, batch)
                    rows = skew_sample.take(batch, selected)
                    transformed = skew_sample.concatenate(list(graph.transform(raw, rows)))
                    yield Sample(keys[selected], rows, transformed)
