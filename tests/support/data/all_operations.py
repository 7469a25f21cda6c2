"""Every feature operation on columns of every dtype that it takes, and random rows for them."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_transform.tf_metadata import schema_utils

from components.features.config import OPS, FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan

VECTORS = Path(__file__).with_name("vectors.txt")
"""Vectors of some values of `shop` and `count`, and of some words."""
OPTIONS: dict[str, dict[str, Any]] = {
    "z_score": {},
    "log": {},
    "min_max": {},
    "clip": {"low": 1, "high": 12},
    "pass_through": {},
    "missing": {},
    "piecewise_linear": {"bins": 5},
    "cyclical": {"period": 7},
    "bucketize": {"buckets": 4},
    "vocab": {"size": 3, "oov_buckets": 2, "embedding": 3},
    "hash": {"buckets": 7},
    "multi_hot": {"size": 3, "oov_buckets": 2},
    "split": {"size": 3, "oov_buckets": 2, "max_values": 3},
    "text": {"buckets": 50, "max_values": 4},
    "vectors": {"path": str(VECTORS), "width": 3},
    "sequence": {"size": 3, "oov_buckets": 2, "max_values": 3},
    "time_gaps": {"max_values": 3},
    "date_part": {"part": "month"},
    "date_parts": {"parts": ["month", "year"]},
    "image": {"height": 4, "width": 4},
    "target_mean": {"smoothing": 2, "folds": 3},
    "count": {},
    "geo_distance": {"longitude": "count", "to": [10, -5]},
}
APART = ("image", "date_part")
"""Operations that want a column of their own, or stand in another one."""
COLUMNS = {
    "int": ("count", "never_int"),
    "float": ("price",),
    "bytes": ("shop", "never_bytes"),
}
"""Of each dtype: one value at most, and none anywhere; what takes a float takes whole numbers, too."""
OTHERS = {
    "pair": ["z_score", *({op: OPTIONS[op]} for op in ("multi_hot", "split"))],
    "seats": ["z_score", *({op: OPTIONS[op]} for op in ("vocab", "multi_hot", "split"))],
    "tags": [{op: OPTIONS[op]} for op in ("hash", "multi_hot", "split", "text", "date_parts")],
    "picture": {"image": OPTIONS["image"]},
    "never_picture": {"image": OPTIONS["image"]},
    "when": [
        {"date_parts": ["year", "month", "day", "weekday", "hour", "minute", "day_of_year"]},
        {"date_parts": {"parts": ["month", "hour"], "encode": "cyclical"}},
    ],
    "stamp": {"date_parts": {"parts": ["hour", "year"], "unit": "milliseconds"}},
    "never_when": {"date_parts": ["year", "hour"]},
    "note": {"text": {"vocabulary": 20, "ngrams": 3, "max_values": 8}},
    "never_note": {"text": {"vocabulary": 20}},
    "review": {"text": {"vocabulary": 20, "max_values": 8, "weighting": "tf_idf"}},
    "comment": {"vectors": {"path": str(VECTORS), "width": 3, "words": True}},
    "never_review": {"text": {"vocabulary": 20, "weighting": "tf_idf"}},
    "user": {"hash": {"buckets": 20, "min_frequency": 20}},
    "users": {"sequence": {"of": "user", "max_values": 4}},
    "user_kinds": {"sequence": {"buckets": 9, "max_values": 4, "along": "users"}},
    "user_times": {"time_gaps": {"max_values": 4, "along": "users", "until": "stamp", "unit": "milliseconds"}},
    "counts": {"sequence": {"of": "count", "max_values": 4}},
    "pair_of_times": {"time_gaps": {"max_values": 4}},
    "row": "z_score",
}
CROSSES = {
    "place": {"columns": ["shop", "count"], "buckets": 40},
    "nowhere": {"columns": ["never_bytes", "count"], "buckets": 5},
    "apart": {"columns": ["left", "seats"], "buckets": 1000, "embedding": 2},
}
LABELS = (Label("price > 10 and count > 1"),)
NO_DATES = {"shop", "tags", "never_bytes"}
"""Texts that are no dates."""


@functools.cache
def png(grey: int) -> bytes:
    """Return a picture of 8 by 8 pixels of one grey."""
    return bytes(tf.io.encode_png(tf.fill([8, 8, 1], tf.constant(grey, tf.uint8))).numpy())


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return random rows; about a fifth of the values is missing."""
    random = np.random.default_rng(seed)

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    def one(*values: bytes) -> bytes:
        return values[random.integers(len(values))]

    when = datetime(1950, 1, 1, tzinfo=timezone.utc)
    return [
        {
            "count": maybe(int(random.integers(-5, 20))),
            "price": maybe(float(np.float32(random.lognormal(2, 1)))),
            "shop": maybe(one(b"a", b"b", b"c", b"d", b"\xc3\xa9", b"\xff\xfe")),
            "seats": maybe([int(number) for number in random.integers(-2, 9, random.integers(1, 5))]),
            "pair": [int(number) for number in random.integers(0, 9, 2)],
            "tags": maybe([one(b"a", b"b | c", b"c|d|a|", b" e", b"") for _ in range(random.integers(1, 4))]),
            "left": maybe(one(b"l", b"r")),
            "when": maybe((when + timedelta(seconds=int(random.integers(0, 4e9)))).isoformat().encode()),
            "stamp": maybe(int(random.integers(-(10**12), 2 * 10**12))),
            "note": maybe(one(b"Red Shoes, red!", "Größe 42 / ÉTÉ".encode(), b"", b"caf\xe9 \xff", b"...")),
            "review": maybe(one(b"Red Shoes, red!", "Größe 42 / ÉTÉ".encode(), b"", b"caf\xe9 \xff", b"...")),
            "comment": maybe([one(b"Red Shoes, red!", b"blue", b"", b"caf\xe9 \xff") for _ in range(2)]),
            "user": maybe(int(random.integers(0, 50))),
            "users": maybe([int(number) for number in random.integers(0, 50, random.integers(1, 8))]),
            "user_kinds": maybe(b"|".join(one(b"x", b"y", b"z") for _ in range(random.integers(1, 8)))),
            "user_times": maybe([int(number) for number in random.integers(-(10**12), 10**12, random.integers(1, 8))]),
            "counts": maybe([int(number) for number in random.integers(-5, 20, random.integers(1, 8))]),
            "pair_of_times": [int(number) for number in random.integers(0, 10**6, 2)],
            "picture": maybe(png(int(random.integers(0, 255)))),
            "row": index,
            **dict.fromkeys(name for name in SPEC if name.startswith("never_")),
        }
        for index in range(count)
    ]


def plan() -> FeaturePlan:
    """Return a plan with every operation on every column whose dtype it accepts."""
    chosen = {
        name: [{op: OPTIONS[op]} for op, kind in OPS.items() if dtype in kind.takes and op not in APART]
        for dtype, columns in COLUMNS.items()
        for name in columns
    }
    features = FeaturesConfig.model_validate({"columns": {**chosen, **OTHERS}, "crosses": CROSSES})
    return FeaturePlan(features=features, labels=LABELS, task="binary")


def stock_plan() -> FeaturePlan:
    """Return `plan` without the operations that TFX's executor does not compute."""
    every = plan()
    columns = {
        name: tuple(op for op in ops_of if not op.is_columnar) for name, ops_of in every.features.columns.items()
    }
    features = every.features.model_copy(update={"columns": columns})
    return every.model_copy(update={"features": features})


def plan_of(op: str) -> FeaturePlan:
    """Return a plan with one operation on every column whose dtype it accepts."""
    columns = {name: {op: OPTIONS[op]} for dtype, names in COLUMNS.items() for name in names if dtype in OPS[op].takes}
    return FeaturePlan(features=FeaturesConfig.model_validate({"columns": columns}), labels=LABELS, task="binary")


SPEC = {
    **dict.fromkeys(("count", "seats", "stamp", "row", "never_int"), tf.io.VarLenFeature(tf.int64)),
    **dict.fromkeys(("user", "users", "user_times", "counts"), tf.io.VarLenFeature(tf.int64)),
    **dict.fromkeys(("pair", "pair_of_times"), tf.io.FixedLenFeature([2], tf.int64)),
    "price": tf.io.VarLenFeature(tf.float32),
    **dict.fromkeys(("shop", "tags", "left", "when", "note", "picture", "user_kinds"), tf.io.VarLenFeature(tf.string)),
    **dict.fromkeys(("review", "never_review", "comment"), tf.io.VarLenFeature(tf.string)),
    **dict.fromkeys(("never_bytes", "never_when", "never_note", "never_picture"), tf.io.VarLenFeature(tf.string)),
}
NOTHING: dict[str, Any] = {**dict.fromkeys(SPEC), "pair": [0, 0], "pair_of_times": [0, 0]}
"""A row that lacks all that may be missing."""


def values(value: Any) -> list[Any]:
    """Return a row's values of one column."""
    return value if isinstance(value, list) else [] if value is None else [value]


def example(row: dict[str, Any]) -> bytes:
    feature = {}
    for name, value in row.items():
        dtype = SPEC[name].dtype
        if dtype == tf.string:
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values(value)))
        elif dtype == tf.float32:
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values(value)))
        else:
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values(value)))
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


SCHEMA = schema_utils.schema_from_feature_spec(SPEC)
"""The schema of the rows."""
_TYPES = {tf.int64: pa.int64(), tf.float32: pa.float32(), tf.string: pa.binary()}


def table(count: int, seed: int, *more: dict[str, Any]) -> pa.RecordBatch:
    """Return random rows and the rows of `more` as a table of lists; a missing value is null."""
    table_rows = [*rows(count, seed), *more]
    columns = {name: [values(row[name]) or None for row in table_rows] for name in sorted(SPEC)}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(column, pa.list_(_TYPES[SPEC[name].dtype])) for name, column in columns.items()}
    )


def small_plan() -> FeaturePlan:
    """Return a few operations that use every kind of statistic."""
    columns = {
        "price": ["log", {"bucketize": {"buckets": 4}}, {"piecewise_linear": {"bins": 5}}],
        "shop": {"vocab": {"size": 3}},
        "tags": {"multi_hot": {"size": 3}},
        "row": "z_score",
    }
    return FeaturePlan(features=FeaturesConfig.model_validate({"columns": columns}), labels=LABELS, task="binary")
