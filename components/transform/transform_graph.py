"""The transform graph of a folder: written once, opened once in each process, applied to batches of bounded size."""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

from components.base.errors import InputError
from components.compat import tft as compat
from components.data import examples
from components.transform.raw_batches import RawBatches

_CALL_BYTES = 16 << 20
"""Bytes of features of a fixed shape that one call of the graph may compute. The graph needs about 8 times as much:
SparseTensors with an index for each value, and matrices of float64. Four times as many bytes save an eighth of the time
of the calls."""
_CALL_ROWS = 1 << 14
"""Greatest number of rows of a call: more are not faster, and intermediate tensors need more memory."""
_ITEM = {tf.int64: 8, tf.float32: 4, tf.string: 16}


class WrittenGraph(NamedTuple):
    """A complete transform graph; `version` distinguishes it from earlier ones in the same folder."""

    folder: str
    version: str


_functions: dict[WrittenGraph, compat.Function] = {}
"""The graph that this process wrote last: it need not be loaded."""


def write(
    function: compat.Function, specs: Mapping[str, tf.TypeSpec], assets: Mapping[str, str], folder: str
) -> WrittenGraph:
    """Write a transform graph; see `compat.tft.write_transform_graph`."""
    graph = written(folder)
    _functions.clear()
    _functions[graph] = compat.write_transform_graph(function, specs, assets, folder)
    return graph


def written(folder: str) -> WrittenGraph:
    """Return a graph that was just written into a folder."""
    return WrittenGraph(folder, uuid.uuid4().hex)


class TransformGraph:
    """A transform graph.

    Args:
      graph: Where it is.

    Attributes:
      schema: The Arrow schema of transformed batches: the columns of the transformed schema, in its order.

    Raises:
      InputError: A feature is a RaggedTensor of several dimensions.
    """

    schema: pa.Schema

    def __init__(self, graph: WrittenGraph) -> None:
        self._function = _functions.pop(graph) if graph in _functions else compat.load_transform_graph(graph.folder)
        output = tft.TFTransformOutput(graph.folder)
        transformed = output.transformed_metadata.schema
        self._converter = compat.arrow_converter(transformed)
        self._specs = output.transformed_feature_spec()
        self.schema = examples.arrow_schema(transformed)
        if sorted(self.schema.names) != sorted(self._converter.arrow_schema().names):
            others = sorted(set(self._converter.arrow_schema().names) - set(self.schema.names))
            raise InputError(
                f"features.preprocessing_fn: expected tensors that are dense or sparse, received ragged ones: "
                f"{', '.join(others)}",
                "return a dense or a sparse tensor, or set runtime.vectorised to false",
            )
        width = sum(
            _ITEM[spec.dtype] * math.prod(spec.shape)
            for spec in self._specs.values()
            if isinstance(spec, tf.io.FixedLenFeature)
        )
        self._rows = max(1, min(_CALL_ROWS, _CALL_BYTES // max(width, 1)))

    def transform(self, batches: RawBatches, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the transformed rows of a batch that was read with `batches.schema`."""
        for start in range(0, batch.num_rows, self._rows):
            outputs = self._function(batches.tensors(batch.slice(start, self._rows)))
            converted = self._converter.convert(dict(outputs))
            columns = [self._column(converted, name) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, converted: pa.RecordBatch, name: str) -> pa.Array:
        column = converted.column(converted.schema.get_field_index(name))
        if not isinstance(self._specs.get(name), tf.io.VarLenFeature):
            return column
        # A row without values is missing, as in raw examples.
        offsets = np.asarray(column.offsets)
        empty = np.append(offsets[:-1] == offsets[1:], False)
        return pa.LargeListArray.from_arrays(pa.array(offsets, mask=empty), column.values)


@functools.lru_cache(maxsize=1)
def opened(graph: WrittenGraph) -> TransformGraph:
    """Open a graph once in each process."""
    return TransformGraph(graph)
