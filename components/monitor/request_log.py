"""Reads request logs: PredictionLog records in TFRecord files, of this project's server or of TensorFlow Serving."""

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

from components.data import file_io, tfrecord
from components.data.missing import nan_to_null
from components.data.saved_model import MISSING, RAW, column_of
from components.data.split_sample import first_values, joined
from components.errors import InputError
from components.files import is_remote

_NAME = re.compile(r"^\.?requests-(\d{19})-")
"""A file of this project's server; the number is the time of its first record, in nanoseconds since 1970."""


@dataclass(frozen=True)
class LogFile:
    """A file of a request log; `time` is that of its first record, in seconds since 1970, or of its last change."""

    path: str
    time: float


@dataclass(frozen=True)
class ServedRows:
    """Rows that a version has answered.

    Attributes:
      rows: how many the log has, of which the columns may be a sample.
      columns: name → the value that was sent, null where it was missing; large_binary, float32 or int64.
      outputs: name → answers; [rows, ...].
    """

    rows: int
    columns: Mapping[str, pa.Array]
    outputs: Mapping[str, npt.NDArray[Any]]

    @property
    def compared(self) -> int:
        """The number of rows of the columns."""
        return len(next(iter(self.columns.values())))


def files(patterns: Sequence[str]) -> list[LogFile]:
    """Lists the files of a request log, the oldest first; of a folder also those that the server is still writing.

    Args:
      patterns: folders, files or patterns, local or remote.

    Raises:
      InputError: there is no file.
    """
    found = []
    for pattern in patterns:
        io_ = file_io.file_system(pattern)
        # This project's server hides the files that it is still writing.
        inside = [file_io.join(pattern, name) for name in ("[!.]*", ".requests-*")] if io_.isdir(pattern) else [pattern]
        paths = (path for each in inside for path in io_.glob(each))
        found += [LogFile(path, _time(path)) for path in paths if not io_.isdir(path)]
    if not found:
        raise InputError(
            f"monitor.requests: expected files of a request log, received none at {', '.join(patterns) or 'no path'}",
            "name the folder of `runner.py serve --log FOLDER`",
        )
    return sorted(found, key=lambda each: (each.time, each.path))


def read(paths: Iterable[str], most_rows: int, seed: int = 0) -> dict[int, ServedRows]:
    """Reads the rows of a log by the version that has answered.

    Predictions by the signature `raw` are read, and those by signatures that take serialized tf.Examples. Memory is
    bounded: of more records of a version than `most_rows`, a random sample is parsed.

    Args:
      paths: files of the log; one that was cut off is read up to there.
      most_rows: the most records of a version to parse.
      seed: of the samples.
    """
    random_ = random.Random(seed)  # noqa: S311 - not used for security
    samples: dict[int, _Sample] = defaultdict(lambda: _Sample(most_rows, random_))
    for record in _records(paths):
        samples[_version(prediction_log_pb2.PredictionLog.FromString(record).predict_log)].add(record)
    served = {version: _served(sample) for version, sample in sorted(samples.items()) if version}
    return {version: rows for version, rows in served.items() if rows is not None}


class _Sample:
    """A random sample of records: algorithm R of J. Vitter, ACM TOMS 11(1), 1985.

    Args:
      size: the most records that are kept.
      random_: draws them.
    """

    def __init__(self, size: int, random_: random.Random) -> None:
        self._size, self._random = size, random_
        self.chosen: list[bytes] = []
        self.count = 0

    def add(self, record: bytes) -> None:
        """Counts a record, and perhaps keeps it."""
        self.count += 1
        if self.count <= self._size:
            self.chosen.append(record)
        elif (at := self._random.randrange(self.count)) < self._size:
            self.chosen[at] = record


def _version(log: Any) -> int:
    # TensorFlow Serving records the version that has answered in the response.
    return int(log.response.model_spec.version.value or log.request.model_spec.version.value)


def _served(sample: _Sample) -> ServedRows | None:
    """The rows of a sample of a version's records; None if none of them is a prediction of one of the signatures."""
    requests: dict[bool, list[_Request]] = defaultdict(list)
    for record in sample.chosen:
        request = _Request.parse(record)
        if request is not None:
            requests[request.is_raw].append(request)
    served: ServedRows | None = None
    for is_raw, alike in sorted(requests.items()):
        columns = _raw_columns(alike) if is_raw else _example_columns(alike)
        # A client of TensorFlow Serving may ask for some of the outputs.
        names = set.intersection(*(set(each.outputs) for each in alike))
        outputs = {name: np.concatenate([each.outputs[name] for each in alike]) for name in sorted(names)}
        one = ServedRows(0, columns, outputs)
        one = replace(one, rows=round(one.compared * sample.count / len(sample.chosen)))
        served = one if served is None else _both(served, one)
    return served


class _Request(NamedTuple):
    """A request and its answer."""

    is_raw: bool
    inputs: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def parse(cls, record: bytes) -> _Request | None:
        """Parses a PredictionLog; None if it is no prediction of one of the signatures."""
        log = prediction_log_pb2.PredictionLog.FromString(record).predict_log
        asked, answered = log.request, log.response
        inputs = {name: tf.make_ndarray(each) for name, each in asked.inputs.items()}
        outputs = {name: tf.make_ndarray(each) for name, each in answered.outputs.items()}
        is_raw = asked.model_spec.signature_name == RAW
        is_known = is_raw or [each.dtype == object for each in inputs.values()] == [True]
        return cls(is_raw, inputs, outputs) if outputs and is_known else None


def _records(paths: Iterable[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            for chunk in _chunks(path):
                yield from chunk.records
        except InputError as error:
            # The server was killed while it wrote.
            logging.warning("the rest of the log is not read: %s", error.headline)


def _chunks(path: str) -> Iterator[tfrecord.Chunk]:
    name = PurePosixPath(path).name
    if name.startswith("."):
        with contextlib.suppress(FileNotFoundError):
            yield from _unfinished_chunks(path)
            return
        # It has got its final name since it was listed.
        path = file_io.join(path.removesuffix(name), name[1:])
    yield from tfrecord.records(path)


def _unfinished_chunks(path: str) -> Iterator[tfrecord.Chunk]:
    """The records so far; the file is 64 MB when it is finished."""
    with file_io.open_binary(path) as file:
        # Unlike a gzip file object, it returns what there is of a compressed file that has no end yet.
        content = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(file.read())
    # The last record may be half written.
    with contextlib.suppress(InputError):
        yield from tfrecord.records_of(path, io.BytesIO(content))


def _raw_columns(requests: Sequence[_Request]) -> dict[str, pa.Array]:
    """The inputs, of a history the first event. Only the server's --request_log_key may be missing in a request, or be
    of two types.
    """
    columns = {}
    for name in dict.fromkeys(name for each in requests for name in each.inputs):
        types = {each.inputs[name].dtype for each in requests if name in each.inputs}
        dtype = types.pop() if len(types) == 1 else np.dtype(object)
        missing = MISSING[tf.dtypes.as_dtype(dtype)]
        values = np.concatenate([_values(each, name, dtype, missing) for each in requests])
        mask = np.isnan(values) if dtype == np.float32 else values == missing
        columns[name] = pa.array(values, pa.large_binary() if dtype.kind == "O" else None, mask=mask)
    return columns


def _values(request: _Request, name: str, dtype: np.dtype[Any], missing: Any) -> npt.NDArray[Any]:
    if name not in request.inputs:
        return np.full(len(next(iter(request.inputs.values()))), missing, dtype)
    values = request.inputs[name]
    if values.ndim > 1:
        values = values[:, 0] if values.shape[1] else np.full(len(values), missing, dtype)
    return values if values.dtype == dtype else np.array([str(each).encode() for each in values.tolist()], object)


def _example_columns(requests: Sequence[_Request]) -> dict[str, pa.Array]:
    examples = np.concatenate([value for each in requests for value in each.inputs.values()])
    batch = example_coder.ExamplesToRecordBatchDecoder().DecodeBatch(examples.tolist())
    return {name: nan_to_null(first_values(column_of(batch, name))) for name in batch.schema.names}


def _both(one: ServedRows, other: ServedRows) -> ServedRows:
    """The rows of both. Examples have no column of which none has a value."""
    columns = {
        name: joined([each.columns.get(name, pa.nulls(each.compared)) for each in (one, other)])
        for name in dict.fromkeys((*one.columns, *other.columns))
    }
    outputs = {
        name: np.concatenate([one.outputs[name], other.outputs[name]]) for name in one.outputs if name in other.outputs
    }
    return ServedRows(one.rows + other.rows, columns, outputs)


def _time(path: str) -> float:
    name = _NAME.match(PurePosixPath(path).name)
    return int(name[1]) / 1e9 if name else modified(path)


def modified(path: str) -> float:
    """When a file was last written, in seconds since 1970."""
    return Path(path).stat().st_mtime if not is_remote(path) else float(tf.io.gfile.stat(path).mtime_nsec) / 1e9
