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
"""Maximum bytes of features of a fixed shape that a call of the graph computes. The graph needs about 8 times as much
memory for SparseTensors with one index per value and for matrices of float64. A limit four times as high would only
save an eighth of the time."""
_CALL_ROWS = 1 << 14
"""Maximum number of rows of a call. More rows are not faster, and intermediate tensors need more memory."""
_ITEM = {tf.int64: 8, tf.float32: 4, tf.string: 16}


class WrittenGraph(NamedTuple):
    """A complete transform graph. The `version` distinguishes it from earlier graphs in the same folder."""

    folder: str
    version: str


_functions: dict[WrittenGraph, compat.Function] = {}
"""The graph that this process wrote last, so that it need not be loaded."""


def write(
    function: compat.Function, specs: Mapping[str, tf.TypeSpec], assets: Mapping[str, str], folder: str
) -> WrittenGraph:
    """Write a transform graph; see `compat.tft.write_transform_graph`."""
    graph = identify(folder)
    _functions.clear()
    _functions[graph] = compat.write_transform_graph(function, specs, assets, folder)
    return graph


def identify(folder: str) -> WrittenGraph:
    """Return an identifier with a new version for the graph that was just written into a folder."""
    return WrittenGraph(folder, uuid.uuid4().hex)


class TransformGraph:
    """A loaded transform graph.

    Args:
      graph: Identifier of the graph.

    Attributes:
      schema: Arrow schema of transformed batches, with the columns of the transformed schema in the same order.

    Raises:
      InputError: If a feature is a RaggedTensor of several dimensions.
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
            ragged = sorted(set(self._converter.arrow_schema().names) - set(self.schema.names))
            raise InputError(
                f"features.preprocessing_fn: expected dense or sparse tensors, received ragged tensors: "
                f"{', '.join(ragged)}",
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
        # Convert an empty row to a missing value, as in raw examples.
        offsets = np.asarray(column.offsets)
        empty = np.append(offsets[:-1] == offsets[1:], False)
        return pa.LargeListArray.from_arrays(pa.array(offsets, mask=empty), column.values)


@functools.lru_cache(maxsize=1)
def open_graph(graph: WrittenGraph) -> TransformGraph:
    """Open a graph once per process."""
    return TransformGraph(graph)
