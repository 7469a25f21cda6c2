"""Small SavedModels for batch prediction, with this project's signatures and with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf


def own(folder: Path) -> str:
    """Write a model with this project's signatures: `score` is hours / 10, plus 1 for the zip code 007.

    A retrieval model has the signature `top_k`, whose `scores` are the hours.
    """
    spec = {"hours": tf.io.VarLenFeature(tf.float32), "zip": tf.io.VarLenFeature(tf.string)}

    def score(hours: tf.Tensor, code: tf.Tensor) -> dict[str, tf.Tensor]:
        known = tf.where(tf.math.is_nan(hours), -10.0, hours)
        return {"score": (known / 10 + tf.cast(code == "007", tf.float32))[:, tf.newaxis]}

    def write_doubling_model(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(examples, spec)
        # Take the maximum of several hours, so that a list and its first value give different scores.
        hours = tf.sparse.reduce_max(parsed["hours"], axis=1)
        empty = tf.sparse.reduce_sum(tf.sparse.map_values(tf.ones_like, parsed["hours"]), axis=1) == 0
        return score(tf.where(empty, float("nan"), hours), tf.sparse.to_dense(parsed["zip"], "")[:, 0])

    examples = tf.TensorSpec([None], tf.string, name="examples")
    columns = {"hours": tf.TensorSpec([None], tf.float32, "hours"), "zip": tf.TensorSpec([None], tf.string, "zip")}
    signatures = {
        "serving_default": tf.function(write_doubling_model, [examples]),
        "transform_features": tf.function(write_doubling_model, [examples]),
        "raw": tf.function(lambda values: score(values["hours"], values["zip"]), [columns]),
        "top_k": tf.function(lambda values: {"scores": values["hours"][:, tf.newaxis]}, [{"hours": columns["hours"]}]),
    }
    tf.saved_model.save(tf.Module(), str(folder), signatures)
    return str(folder)


def write_doubling_model(folder: Path) -> str:
    """Write a model that reads tf.Examples from an input named `rows` and doubles an integer; return its path."""

    def double(rows: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(rows, {"number": tf.io.FixedLenFeature([], tf.int64)})
        return {"doubled": 2 * parsed["number"]}

    return _save(folder, double, tf.TensorSpec([None], tf.string, name="rows"))


def write_identity_model(folder: Path, **inputs: tf.TensorSpec) -> str:
    """Write a model whose outputs are its inputs, with `_out` appended to their names; return its path."""
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()}
    return _save(folder, lambda values: {f"{name}_out": tf.identity(value) for name, value in values.items()}, specs)


def _save(folder: Path, function: Any, signature: Any) -> str:
    tf.saved_model.save(tf.Module(), str(folder), {"serving_default": tf.function(function, [signature])})
    return str(folder)
