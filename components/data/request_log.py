"""Read request logs: TFRecord files of PredictionLogs, written by this project's server or TensorFlow Serving."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2
from tfx_bsl.coders import example_coder

from components.base.errors import InputError
from components.base.files import is_remote
from components.data import file_io, tfrecord
from components.data.missing import nan_to_null
from components.data.saved_model import MISSING, RAW, column_of, is_missing
from components.data.split_sample import concatenate, first_values

_NAME = re.compile(r"^\.?requests-(\d{19})-")
"""Name of a file that this project's server writes. The number is the time of the first record, in nanoseconds since
1970. The name begins with a dot until the file is complete."""


@dataclass(frozen=True)
class LogFile:
    """A file of a request log.

    Attributes:
      path: Path of the file, local or remote.
      time: Time of the first record, in seconds since 1970. For a file of TensorFlow Serving, whose name does not
        contain the time, when the file was last modified.
    """

    path: str
    time: float


@dataclass(frozen=True)
class ServedRows:
    """The rows that a version answered, or a random sample of them.

    Attributes:
      rows: Number of rows in the log. The columns may contain only a sample of them.
      columns: Name → values that were sent, null if missing; large_binary, float32 or int64; [compared].
      outputs: Name → answers; [compared, ...].
    """

    rows: int
    columns: Mapping[str, pa.Array]
    outputs: Mapping[str, npt.NDArray[Any]]

    @property
    def compared(self) -> int:
        """Number of rows in the columns and outputs."""
        # A log without private columns may not contain any column.
        return len(next(iter({**self.columns, **self.outputs}.values())))


def files(patterns: Sequence[str]) -> list[LogFile]:
    """List the files of a request log in ascending order of time.

    For a folder, the list includes the files that this project's server is still writing.

    Args:
      patterns: Folders, files or patterns, local or remote.

    Raises:
      InputError: If there are no files.
    """
    log_files = []
    for pattern in patterns:
        io_ = file_io.file_system(pattern)
        # This project's server hides the files that it is still writing: their names begin with a dot.
        globs = [file_io.join(pattern, name) for name in ("[!.]*", ".requests-*")] if io_.isdir(pattern) else [pattern]
        paths = (path for glob in globs for path in io_.glob(glob))
        log_files += [LogFile(path, _time_of_file(path)) for path in paths if not io_.isdir(path)]
    if not log_files:
        raise InputError(
            f"monitor.requests: expected files of a request log, received none at {', '.join(patterns) or 'no path'}",
            "name the folder of `runner.py serve --log FOLDER`",
        )
    return sorted(log_files, key=lambda file: (file.time, file.path))


def read(paths: Iterable[str], most_rows: int, seed: int = 0) -> dict[int, ServedRows]:
    """Read the rows of a log, grouped by the version that answered.

    Only predictions of the signature `raw` and of signatures that take serialized tf.Examples are read. Memory is
    bounded: if a version has more than `most_rows` records, only a random sample of them is parsed.

    Args:
      paths: Files of the log. A truncated file is read up to its last complete record.
      most_rows: Maximum number of records to parse per version.
      seed: Seed of the samples.

    Returns:
      Number of a version → its rows, in ascending order of the versions.
    """
    random_ = random.Random(seed)  # noqa: S311 - not used for security
    samples: dict[int, _Sample] = defaultdict(lambda: _Sample(most_rows, random_))
    for record in _read_records(paths):
        samples[_read_version(prediction_log_pb2.PredictionLog.FromString(record).predict_log)].add(record)
    served = {version: _parse_sample(sample) for version, sample in sorted(samples.items()) if version}
    return {version: rows for version, rows in served.items() if rows is not None}


class _Sample:
    """A uniform random sample of a stream of records.

    Source: J. Vitter, Random Sampling with a Reservoir, ACM Transactions on Mathematical Software 11(1), 1985,
    algorithm R.

    Args:
      size: Maximum number of records in the sample.
      random_: Source of random numbers.

    Attributes:
      chosen: The records in the sample.
      count: Number of records that were added, in the sample or not.
    """

    def __init__(self, size: int, random_: random.Random) -> None:
        self._size, self._random = size, random_
        self.chosen: list[bytes] = []
        self.count = 0

    def add(self, record: bytes) -> None:
        """Count a record, and add it to the sample with probability size / count."""
        self.count += 1
        if self.count <= self._size:
            self.chosen.append(record)
        elif (at := self._random.randrange(self.count)) < self._size:
            self.chosen[at] = record


def _read_version(log: Any) -> int:
    # A request may leave the version open. TensorFlow Serving then records the version that answered in the response.
    return int(log.response.model_spec.version.value or log.request.model_spec.version.value)


def _parse_sample(sample: _Sample) -> ServedRows | None:
    """Parse the sampled records of a version; return None if none of them is a prediction of a supported signature."""
    requests: dict[bool, list[_Request]] = defaultdict(list)
    for record in sample.chosen:
        request = _Request.parse(record)
        if request is not None:
            requests[request.is_raw].append(request)
    served: ServedRows | None = None
    for is_raw, group in sorted(requests.items()):
        columns = _convert_raw_requests(group) if is_raw else _decode_examples(group)
        # A client of TensorFlow Serving may request a subset of the outputs: keep those that all answers contain.
        names = set.intersection(*(set(request.outputs) for request in group))
        outputs = {name: np.concatenate([request.outputs[name] for request in group]) for name in sorted(names)}
        rows = ServedRows(0, columns, outputs)
        # A record may contain several rows: estimate their number in the log from the sample.
        rows = replace(rows, rows=round(rows.compared * sample.count / len(sample.chosen)))
        served = rows if served is None else _concatenate(served, rows)
    return served


class _Request(NamedTuple):
    """A request and its answer.

    Attributes:
      is_raw: Whether the signature is `raw`; otherwise the request contains serialized tf.Examples.
      inputs: Name → values; [rows, ...].
      outputs: Name → answers; [rows, ...].
    """

    is_raw: bool
    inputs: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def parse(cls, record: bytes) -> _Request | None:
        """Parse a PredictionLog; return None if it is not a prediction of a supported signature."""
        log = prediction_log_pb2.PredictionLog.FromString(record).predict_log
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in log.request.inputs.items()}
        outputs = {name: tf.make_ndarray(tensor) for name, tensor in log.response.outputs.items()}
        is_raw = log.request.model_spec.signature_name == RAW
        # Serialized tf.Examples are the only input of their signature, and a vector of bytes.
        is_supported = is_raw or [values.dtype == object for values in inputs.values()] == [True]
        return cls(is_raw, inputs, outputs) if outputs and is_supported else None


def _read_records(paths: Iterable[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            for chunk in _read_chunks(path):
                yield from chunk.records
        except InputError as error:
            # The file is truncated if the server was killed while it was writing.
            logging.warning("the rest of the log is not read: %s", error.headline)


def _read_chunks(path: str) -> Iterator[tfrecord.Chunk]:
    name = PurePosixPath(path).name
    if name.startswith("."):
        with contextlib.suppress(FileNotFoundError):
            yield from _read_unfinished_chunks(path)
            return
        # The server has completed the file since it was listed, and removed the dot from its name.
        path = file_io.join(path.removesuffix(name), name[1:])
    yield from tfrecord.records(path)


def _read_unfinished_chunks(path: str) -> Iterator[tfrecord.Chunk]:
    """Read the records that the server has written so far; the complete file has about 64 MB and fits into memory."""
    with file_io.open_binary(path) as file:
        # A gzip file object would raise an EOFError, because the compressed stream is still without its end.
        content = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(file.read())
    # The last record may be incomplete.
    with contextlib.suppress(InputError):
        yield from tfrecord.records_of(path, io.BytesIO(content))


def _convert_raw_requests(requests: Sequence[_Request]) -> dict[str, pa.Array]:
    """Convert the inputs of the signature `raw` to columns; of a history, only the first event.

    Every request contains all inputs of the model, each with the same dtype. There are two exceptions: the column that
    the server logs without passing it to the model (`--request_log_key`), and a column that became private in the
    meantime. They may be missing, or be text in one request and a number in another, and then become text.
    """
    columns = {}
    for name in dict.fromkeys(name for request in requests for name in request.inputs):
        dtypes = {request.inputs[name].dtype for request in requests if name in request.inputs}
        dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(object)
        missing = MISSING[tf.dtypes.as_dtype(dtype)]
        values = np.concatenate([_convert_input(request, name, dtype, missing) for request in requests])
        mask = np.isnan(values) if dtype == np.float32 else values == missing
        columns[name] = pa.array(values, pa.large_binary() if dtype.kind == "O" else None, mask=mask)
    return columns


def _convert_input(request: _Request, name: str, dtype: np.dtype[Any], missing: Any) -> npt.NDArray[Any]:
    if name not in request.inputs:
        return np.full(len(next(iter(request.outputs.values()))), missing, dtype)
    values = request.inputs[name]
    if values.ndim > 1:
        values = values[:, 0] if values.shape[1] else np.full(len(values), missing, dtype)
    if values.dtype == dtype:
        return values
    texts = np.array([str(value).encode() for value in values.tolist()], object)
    texts[is_missing(values)] = b""
    return texts


def _decode_examples(requests: Sequence[_Request]) -> dict[str, pa.Array]:
    """Convert serialized tf.Examples to columns; of several values, only the first."""
    examples = np.concatenate([serialized for request in requests for serialized in request.inputs.values()])
    decode = example_coder.ExamplesToRecordBatchDecoder().DecodeBatch
    try:
        batches = [decode(examples.tolist())]
    except RuntimeError:
        # A feature has several types: a number that became private in this window is a hash from then on.
        batches = [decode([example]) for example in examples.tolist()]
    columns = {
        name: [nan_to_null(first_values(column_of(batch, name))) for batch in batches]
        for name in dict.fromkeys(name for batch in batches for name in batch.schema.names)
    }
    return {name: _concatenate_parts(parts) for name, parts in columns.items()}


def _concatenate_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Concatenate the parts of a column; if they have several types, all values become text."""
    if len({str(part.type) for part in parts if not pa.types.is_null(part.type)}) > 1:
        is_text = pa.types.is_large_binary
        parts = [part if is_text(part.type) else part.cast(pa.large_string()).cast(pa.large_binary()) for part in parts]
    return concatenate(parts)


def _concatenate(first: ServedRows, second: ServedRows) -> ServedRows:
    """Concatenate rows; a column that one side lacks is missing in its rows.

    tf.Examples without any value for a column do not contain the column.
    """
    columns = {
        name: _concatenate_parts([rows.columns.get(name, pa.nulls(rows.compared)) for rows in (first, second)])
        for name in dict.fromkeys((*first.columns, *second.columns))
    }
    outputs = {
        name: np.concatenate([first.outputs[name], second.outputs[name]])
        for name in first.outputs
        if name in second.outputs
    }
    return ServedRows(first.rows + second.rows, columns, outputs)


def _time_of_file(path: str) -> float:
    match = _NAME.match(PurePosixPath(path).name)
    return int(match[1]) / 1e9 if match else modified(path)


def modified(path: str) -> float:
    """Return when a file was last modified, in seconds since 1970."""
    return Path(path).stat().st_mtime if not is_remote(path) else file_io.stat(path)[1] / 1e9
