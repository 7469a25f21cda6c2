"""A small model with a schema of its requests, which a server checks: y is the sum of the numbers of a row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.results.request_schema import FILE, Column, RequestSchema
from tests.support.servers.serving import add_manifest

SCHEMA = RequestSchema(
    columns={
        "fare": Column(dtype="float32", required=True, always_present=True, least=0, greatest=100),
        "hour": Column(dtype="int64", least=0, greatest=23),
        "payment": Column(dtype="string", always_present=True, domain=("Cash", "Card")),
        "past": Column(dtype="float32", most_values=None, least=0, greatest=9),
    },
    other_columns=("tips",),
)
ROW: Mapping[str, Any] = {"fare": 2.0, "hour": 3, "payment": "Cash", "past": [1.0, 2.0]}
SPECS = {
    "fare": tf.io.VarLenFeature(tf.float32), "hour": tf.io.VarLenFeature(tf.int64),
    "payment": tf.io.VarLenFeature(tf.string), "past": tf.io.VarLenFeature(tf.float32),
}  # fmt: skip
COLUMNS = {
    "fare": tf.TensorSpec([None], tf.float32), "hour": tf.TensorSpec([None], tf.int64),
    "payment": tf.TensorSpec([None], tf.string), "past": tf.TensorSpec([None, None], tf.float32),
}  # fmt: skip


class Sum(tf.Module):
    """Sums the numbers of a row; a missing one counts 0. Like this project's models, it accepts any tf.Example."""

    @staticmethod
    def total(fare: Any, hour: Any, past: Any) -> Any:
        hours = tf.where(hour == tf.int64.min, tf.zeros_like(hour), hour)
        numbers = [fare, tf.cast(hours, tf.float32), tf.reduce_sum(_or_zero(past), axis=1)]
        return {"y": tf.add_n([_or_zero(value) for value in numbers])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_default(self, examples: Any) -> Any:
        parsed = tf.io.parse_example(examples, SPECS)
        sums = {name: tf.sparse.reduce_sum(parsed[name], axis=1) for name in ("fare", "hour", "past")}
        return self.total(sums["fare"], sums["hour"], sums["past"][:, tf.newaxis])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(self, examples: Any) -> Any:
        return self.serving_default(examples)

    @tf.function(input_signature=[COLUMNS[name] for name in ("fare", "hour", "payment", "past")])
    def raw(self, fare: Any, hour: Any, payment: Any, past: Any) -> Any:
        return self.total(fare, hour, past)


def _or_zero(values: Any) -> Any:
    return tf.where(tf.math.is_nan(values), tf.zeros_like(values), values)


def write(folder: Path) -> Path:
    """Write the model as version 1 below a folder; return the folder of the model, `sum`."""
    version, model = folder / "sum" / "1", Sum()
    names = ("serving_default", "raw", "transform_features")
    tf.saved_model.save(model, str(version), signatures={name: getattr(model, name) for name in names})
    (version / FILE).parent.mkdir(exist_ok=True)
    (version / FILE).write_text(SCHEMA.model_dump_json())
    add_manifest(version, "sum")
    return version.parent


def example(row: Mapping[str, Any]) -> bytes:
    """Return a row as a tf.Example."""
    message = tf.train.Example()
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        kind = {str: "bytes_list", int: "int64_list", float: "float_list"}[type(values[0])]
        feature = getattr(message.features.feature[name], kind)
        feature.value.extend(value.encode() if isinstance(value, str) else value for value in values)
    return bytes(message.SerializeToString())
