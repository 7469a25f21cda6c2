"""A sample of raw rows and the same rows transformed, with which later nodes detect skew between training and serving.

Transform writes the sample into the artifact of its graph. The Trainer compares the exported model with the sample, and
writes its predictions for the same rows into the model's artifact. The serving check compares a server's responses with
these predictions.

The choice of rows only depends on the rows and their files. Therefore samples of parts of the data can be merged in any
order, regardless of the workers that read the parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data import file_io
from components.data.examples import Examples, ParquetWriter

ROWS = 1000
"""Number of rows that are drawn at random, in addition to rows with extreme values."""
_COLUMNS = 200
"""Number of columns, from the first column, whose extreme values are in the sample, with up to eight rows per
column."""
_BYTES = 16 << 20
"""Maximum bytes of the rows that are drawn at random, which limits rows with images."""
_FOLDER = "skew_sample"
_RAW, _TRANSFORMED, _PREDICTIONS = "raw.parquet", "transformed.parquet", "predictions.tfrecord"

Keys: TypeAlias = "npt.NDArray[np.float64]"
Positions: TypeAlias = "npt.NDArray[np.int64]"


class Sample(NamedTuple):
    """Rows of a sample.

    Attributes:
      keys: Random numbers in [0, 1), ascending; float64, shape [rows].
      raw: Raw rows, as in `components.data.examples`.
      transformed: Transformed rows, in the same order.
    """

    keys: Keys
    raw: pa.RecordBatch
    transformed: pa.RecordBatch


@dataclass(frozen=True)
class StoredSample:
    """A sample that Transform wrote.

    Attributes:
      raw: Raw rows. Rows with extreme values come first.
      transformed_path: Path of the Parquet file with the transformed rows, in the same order.
    """

    raw: pa.RecordBatch
    transformed_path: str


class Predictions(NamedTuple):
    """Predictions of the trained model for the rows of a sample.

    Attributes:
      examples: Raw rows as serialized tf.Examples; array of objects, shape [rows].
      outputs: Output name → values; shape [rows, ...].
    """

    examples: npt.NDArray[np.object_]
    outputs: Mapping[str, npt.NDArray[Any]]


class Sampler:
    """Selects rows of a raw batch, and the same rows of the transformed batch, which is added in parts.

    Args:
      keys: Keys of the rows; see `draw_keys`.
      raw: Batch of raw rows.
    """

    def __init__(self, keys: Keys, raw: pa.RecordBatch) -> None:
        self._in_order = select(keys, raw)
        self._keys, self._raw = keys[self._in_order], take(raw, self._in_order)
        self._sorted = np.sort(self._in_order)
        self._seen, self._parts = 0, list[pa.RecordBatch]()

    def add(self, transformed: pa.RecordBatch) -> None:
        """Keep the selected rows of the next part of the transformed rows."""
        here = (self._sorted >= self._seen) & (self._sorted < self._seen + transformed.num_rows)
        self._parts.append(take(transformed, self._sorted[here] - self._seen))
        self._seen += transformed.num_rows

    def sample(self) -> Sample:
        """Return the sample of the batch."""
        transformed = concatenate(self._parts)
        ranks = np.searchsorted(self._sorted, self._in_order)
        return Sample(self._keys, self._raw, take(transformed, ranks))


def draw_keys(path: str, first: int, number: int, rows: int) -> Keys:
    """Draw the keys of a batch of rows. They are the same whenever the same files are read.

    Args:
      path: Path of the file with the rows.
      first: First row group of the range that contains the batch.
      number: Number of the batch in the range.
      rows: Number of rows.
    """
    # Only use the last two parts of the path, because every run has another folder.
    name = "/".join(path.split("/")[-2:])
    return np.random.default_rng([zlib.crc32(name.encode()), first, number]).random(rows)


def select(keys: Keys, raw: pa.RecordBatch) -> Positions:
    """Select the rows with the smallest keys, and rows with extreme values, see `_extreme_rows`.

    Args:
      keys: Keys of the rows; shape [rows].
      raw: Raw rows.

    Returns:
      The positions of the selected rows, in the order of their keys.
    """
    drawn = np.arange(len(keys))
    if len(keys) > ROWS:
        drawn = np.argpartition(keys, ROWS)[:ROWS]
    drawn = drawn[np.argsort(keys[drawn], kind="stable")]
    # Keep a prefix, so that a row that is dropped from a part is also dropped from the whole.
    drawn = drawn[np.cumsum(_row_bytes(take(raw, drawn))) <= _BYTES]
    selected = np.unique(np.concatenate([drawn, _extreme_rows(raw)]))
    return selected[np.argsort(keys[selected], kind="stable")]


def take(batch: pa.RecordBatch, rows: Positions) -> pa.RecordBatch:
    """Copy rows of a batch."""
    positions = pa.array(rows)
    return pa.RecordBatch.from_arrays([column.take(positions) for column in batch.columns], schema=batch.schema)


def merge(samples: Sequence[Sample]) -> Sample:
    """Merge samples of parts of the data, at least one, to the sample of all these rows."""
    keys = np.concatenate([sample.keys for sample in samples])
    raw, transformed = (concatenate([getattr(sample, name) for sample in samples]) for name in ("raw", "transformed"))
    # Sort by key, so that the row with the smallest key is selected from several rows with the same extreme value.
    order = np.argsort(keys, kind="stable")
    keys, raw = keys[order], take(raw, order)
    selected = select(keys, raw)
    return Sample(keys[selected], take(raw, selected), take(transformed, order[selected]))


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches with the same schema; at least one."""
    schema = batches[0].schema
    arrays = [pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(sample: Sample, graph: str) -> None:
    """Write a sample into the artifact of a transform graph."""
    from tfx.dsl.io import fileio

    folder = file_io.join(graph, _FOLDER)
    fileio.makedirs(folder)
    extreme = _extreme_rows(sample.raw)
    order = np.concatenate([extreme, np.setdiff1d(np.arange(len(sample.keys)), extreme)])
    for name, batch in ((_RAW, sample.raw), (_TRANSFORMED, sample.transformed)):
        writer = ParquetWriter(file_io.join(folder, name), batch.schema)
        writer.write(take(batch, order))
        writer.close()


def read(graph: str) -> StoredSample | None:
    """Read the sample in the artifact of a transform graph; return None if it is missing or empty."""
    paths = [file_io.join(file_io.join(graph, _FOLDER), name) for name in (_RAW, _TRANSFORMED)]
    if not all(file_io.file_system(path).exists(path) for path in paths):
        return None
    batches = list(Examples((paths[0],), "parquet").batches())
    return StoredSample(concatenate(batches), paths[1]) if batches else None


def describe(raw: pa.RecordBatch, row: int) -> list[str]:
    """Return the values of a row for an error message, one line per column."""
    return [
        f"{name}: {str(column[row].as_py())[:60]}" for name, column in zip(raw.schema.names, raw.columns, strict=True)
    ]


def write_predictions(predictions: Predictions, model: str) -> None:
    """Write predictions into a model artifact, as a single PredictionLog of TensorFlow Serving."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.inputs["examples"].CopyFrom(tf.make_tensor_proto(predictions.examples))
    for name, values in predictions.outputs.items():
        log.predict_log.response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
    folder = file_io.join(model, _FOLDER)
    tf.io.gfile.makedirs(folder)
    with tf.io.TFRecordWriter(file_io.join(folder, _PREDICTIONS)) as writer:
        writer.write(log.SerializeToString())


def read_predictions(model: str) -> Predictions | None:
    """Read the predictions in a model artifact; return None if there are none, because user code exported the model."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    path = file_io.join(file_io.join(model, _FOLDER), _PREDICTIONS)
    if not tf.io.gfile.exists(path):
        return None
    (record,) = tf.data.TFRecordDataset(path).as_numpy_iterator()
    log = prediction_log_pb2.PredictionLog.FromString(record).predict_log
    outputs = {name: tf.make_ndarray(value) for name, value in log.response.outputs.items()}
    return Predictions(tf.make_ndarray(log.request.inputs["examples"]), outputs)


def _extreme_rows(raw: pa.RecordBatch) -> Positions:
    """Return the positions of rows with extreme values in one of the first columns, ascending.

    For every column: the first row without a value; the rows with the minimum, the maximum and NaN for numbers, or with
    the shortest and the longest text; and the rows with the fewest and the most values for lists.
    """
    return np.unique(np.fromiter((row for column in raw.columns[:_COLUMNS] for row in _extremes(column)), np.int64))


def _extremes(column: pa.Array) -> Iterator[int]:
    if pa.types.is_null(column.type) or not len(column):
        if len(column):
            yield 0
        return
    offsets = np.asarray(column.offsets).astype(np.int64)
    counts = np.diff(offsets)
    if not counts.all():
        yield int(np.argmin(counts))
    if counts.max() > 1:
        yield int(np.argmin(np.where(counts == 0, counts.max(), counts)))
        yield int(np.argmax(counts))
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    if not len(values):
        return
    sizes = pc.binary_length(values) if pa.types.is_large_binary(values.type) else values
    numbers = np.asarray(sizes)
    places = {int(np.argmin(numbers)), int(np.argmax(numbers))}
    if numbers.dtype.kind == "f" and np.isnan(numbers).any() and not np.isnan(numbers).all():
        # argmin and argmax returned the first NaN, so add the extremes of the other numbers.
        places |= {int(np.nanargmin(numbers)), int(np.nanargmax(numbers))}
    # Empty rows repeat the offset of the next row, so the last row with an offset contains the value.
    rows: Positions = np.searchsorted(offsets - offsets[0], np.array(sorted(places)), side="right") - 1
    yield from rows.tolist()


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the sizes of rows in bytes; shape [rows]."""
    sizes: npt.NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_null(column.type):
            continue
        offsets = np.asarray(column.offsets).astype(np.int64)
        if pa.types.is_large_binary(column.type.value_type):
            ends = np.append(0, np.cumsum(np.asarray(pc.binary_length(column.values)), dtype=np.int64))
            sizes += np.diff(ends[offsets])
        else:
            sizes += np.diff(offsets) * column.type.value_type.bit_width // 8
    return sizes
