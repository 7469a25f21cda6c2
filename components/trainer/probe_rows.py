"""Rows to check a model with: typical, extreme, out-of-vocabulary and missing values of its columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from components.features.accumulators import NO_WORD
from components.features.base_op import Op
from components.features.config import Feature, Vocab
from components.features.date_ops import DatePart
from components.features.image_ops import Image
from components.features.plan import FeaturePlan
from components.features.sequence_ops import EventSequence
from components.features.text_ops import MultiHot, Split, Text

MISSING_INT = tf.int64.min
"""The value of a missing integer in a tensor of one value per example."""

_ROWS = 32
_SEED = 0
_EVENTS = 8
"""Exclusive upper bound on the number of events in a history."""
_ENTRIES = 20
"""Number of values to take from a vocabulary, whose first entries are the most frequent."""
_FLOATS = (0.0, -1.0, 0.5, 1e-6, 1e6, -1e6, 1e12)
_INTS = (0, -1, 1, 10**6, -(10**6), 2**40)
_TEXTS = (b"unknown", b"\xc5\x81\xc3\xb3d\xc5\xba", b" ", b"x" * 300, b"\xff\xfe no UTF-8")
_DATES = (
    b"2024-02-29",
    b"1969-12-31T23:59:59Z",
    b"2000-01-01 12:30:00.5",
    b"2023-02-29",
    b"31.12.2024",
    b"12/31/2024 5:05 PM",
)


@dataclass(frozen=True)
class ProbeRows:
    """Values by column; None is missing. The first row contains values only in required columns.

    Attributes:
      columns: Column → one value per row; the events of a history are a list.
      specs: Column → its raw feature spec.
    """

    columns: dict[str, list[Any]]
    specs: Mapping[str, Any]

    def examples(self) -> tf.Tensor:
        """Return the rows as serialized tf.Examples, string, shape [rows]."""
        return tf.constant([self._create_example(row).SerializeToString() for row in self._iterate_rows()])

    def tensors(self) -> dict[str, tf.Tensor]:
        """Return the rows as inputs of `raw`: column → string, int64 or float32, shape [rows] or [rows, n]."""
        missing = {tf.string: b"", tf.int64: MISSING_INT, tf.float32: float("nan")}
        return {
            name: tf.constant(_fill_missing(self.columns[name], missing[spec.dtype]), spec.dtype)
            for name, spec in self.specs.items()
        }

    def describe(self, row: int) -> list[str]:
        """Return the values of a row, one line per column."""
        return [f"{name}: {str(values[row])[:60]}" for name, values in self.columns.items()]

    def _iterate_rows(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self.columns.values(), strict=True):
            yield {name: value for name, value in zip(self.columns, values, strict=True) if value is not None}

    def _create_example(self, row: Mapping[str, Any]) -> tf.train.Example:
        example = tf.train.Example()
        kinds = {tf.string: "bytes_list", tf.int64: "int64_list", tf.float32: "float_list"}
        for name, value in row.items():
            spec = self.specs[name]
            length = 1 if isinstance(spec, tf.io.VarLenFeature) else math.prod(spec.shape)
            values = value if isinstance(value, list) else [value] * length
            getattr(example.features.feature[name], kinds[spec.dtype]).value.extend(values)
        return example


def probe_rows(
    plan: FeaturePlan, specs: Mapping[str, Any], transform: tft.TFTransformOutput, required: Collection[str] = ()
) -> ProbeRows:
    """Create the rows for a model; the same arguments give the same rows.

    Args:
      plan: The features.
      specs: Column → its raw feature spec.
      transform: The transform graph, for its vocabularies.
      required: Columns that have a value in every row; columns with a fixed shape always have one.
    """
    random = np.random.default_rng(_SEED)
    columns, features, histories = {}, _group_by_column(plan.features.declared), plan.features.histories
    always_present = frozenset(required)
    for name, spec in specs.items():
        candidates = _choose_values(spec.dtype, features.get(name, ()), transform, random)
        values = [candidates[row % len(candidates)] for row in range(_ROWS)]
        random.shuffle(values)
        if name in histories:
            lengths = (
                random.integers(1, _EVENTS, _ROWS) if isinstance(spec, tf.io.VarLenFeature) else spec.shape * _ROWS
            )
            values = [[values[(row + at) % _ROWS] for at in range(length)] for row, length in enumerate(lengths)]
        if isinstance(spec, tf.io.VarLenFeature) and name not in always_present:
            values = [None if random.random() < 0.1 else value for value in values]
            values[0] = None
        columns[name] = values
    return ProbeRows(columns, specs)


def _fill_missing(values: list[Any], missing: Any) -> list[Any]:
    """Replace None by `missing`, and pad lists with it to equal lengths."""
    most = max((len(value) for value in values if isinstance(value, list)), default=0)
    if not most:
        return [missing if value is None else value for value in values]
    return [[*(value or ()), *[missing] * (most - len(value or ()))] for value in values]


def _group_by_column(features: Iterable[Feature]) -> Mapping[str, Sequence[Feature]]:
    """Return column → the features computed from it."""
    features_of_column: dict[str, list[Feature]] = {}
    for feature in features:
        for column in dict.fromkeys(feature.columns):
            features_of_column.setdefault(column, []).append(feature)
    return features_of_column


def _choose_values(
    dtype: Any, features: Sequence[Feature], transform: tft.TFTransformOutput, random: np.random.Generator
) -> list[Any]:
    """Return the values of a column with these features, without missing ones."""
    if any(isinstance(feature.op, Image) for feature in features):
        # Other bytes are an error in training and in serving.
        pictures = (random.integers(0, 256, (9, 7, 3)).astype(np.uint8) for _ in range(4))
        return [tf.io.encode_png(picture).numpy() for picture in pictures]
    entries = [
        entry
        for feature in features
        if _has_vocabulary(feature.op)
        for entry in _read_entries(transform.vocabulary_file_by_name(feature.vocabulary), feature.op)
    ]
    if dtype == tf.string:
        lists = [
            feature.op.separator.encode().join(entries[:3])
            for feature in features
            if isinstance(feature.op, (MultiHot, Split)) and entries
        ]
        dates = _DATES if any(isinstance(feature.op, DatePart) for feature in features) else ()
        return [*entries, *lists, *dates, *_TEXTS]
    if dtype == tf.int64:
        return [*(int(entry) for entry in entries), *_INTS, *random.integers(0, 100, 12).tolist()]
    return [*_FLOATS, *(random.normal(size=24) * random.choice([1, 30, 1000], 24)).tolist()]


def _has_vocabulary(op: Op) -> bool:
    if isinstance(op, EventSequence):
        return op.buckets is None
    return isinstance(op, (Vocab, MultiHot, Split)) or (isinstance(op, Text) and op.vocabulary is not None)


def _read_entries(vocabulary: str, op: Op) -> list[bytes]:
    with tf.io.gfile.GFile(vocabulary, "rb") as file:
        entries = [line.rstrip(b"\n") for line in itertools.islice(file, _ENTRIES)]
    if isinstance(op, Text) and op.weighting is not None:
        # See `analysis.InverseFrequencies`.
        entries = [entry.partition(b"\t")[0] for entry in entries]
    # The vocabulary of an empty column contains only this entry, which is not an integer.
    return [entry for entry in entries if entry != NO_WORD]
