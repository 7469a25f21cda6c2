"""A model in the style of TensorFlow 1, with a classification signature."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def classifier(base: Path, number: int) -> Path:
    """Write a model as a version, atomically; its scores for `no` and `yes` are 1 - x and x.

    Signatures: `serving_default` classifies, `facts` returns outputs with and without a row dimension,
    `strict` refuses negative values.
    """
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base, prefix=".") as beside, tf.Graph().as_default(), v1.Session() as session:
        folder = Path(beside, str(number))
        examples = v1.placeholder(tf.string, [None], "examples")
        x = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]
        scores = tf.stack([1 - x, x], axis=1)
        classes = tf.tile([["no", "yes"]], [tf.size(x), 1])
        floats = v1.placeholder(tf.float32, [None], "x")
        with tf.control_dependencies([v1.debugging.assert_non_negative(floats, message="x is below zero")]):
            checked = tf.identity(floats)
        single = {"name": tf.constant("old"), "rows": tf.size(floats), "doubled": 2 * floats}
        models = v1.saved_model
        signatures: dict[str, Any] = {
            "serving_default": models.classification_signature_def(examples, classes, scores),
            "facts": models.predict_signature_def({"x": floats}, single),
            "strict": models.predict_signature_def({"x": floats}, {"y": checked}),
        }
        builder = models.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
        folder.rename(base / str(number))
    return base / str(number)
