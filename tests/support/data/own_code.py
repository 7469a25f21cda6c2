"""A minimal user-defined preprocessing_fn, run_fn and build; each misbehaves once as a trigger file tells it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

DEED = "OWN_CODE_DEED"
"""Environment variable: a file with one word of `_act` and its argument. It is used up by the first to read it."""


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Pass on the hours, and compute the label."""
    _act()
    hours = tf.cast(tf.sparse.to_dense(inputs["hours"])[:, 0], tf.float32)
    rich = tf.equal(tf.sparse.to_dense(inputs["income"])[:, 0], ">50K")
    return {"hours_scaled": tft.scale_to_0_1(hours), "rich": tf.cast(rich, tf.int64)}


def build(inputs: Any, outputs: int) -> Any:
    """Return a network of one layer over the features that are numbers."""
    _act()
    input_tensors = {name: tf_keras.Input((numbers.width,), name=name) for name, numbers in inputs.dense.items()}
    together = tf_keras.layers.Concatenate()(list(input_tensors.values()))
    return tf_keras.Model(input_tensors, tf_keras.layers.Dense(outputs, name="of_the_user")(together))


def run_fn(fn_args: Any) -> None:
    """Export a model with one constant weight: longer hours predict a higher income."""
    transform = tft.TFTransformOutput(fn_args.transform_output)
    _act()
    module = tf.Module()
    module.layer = transform.transform_features_layer()
    module.weight = tf.Variable(1.0)
    spec = transform.raw_feature_spec()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(examples: Any) -> dict[str, Any]:
        return dict(module.layer(tf.io.parse_example(examples, spec)))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        unlabelled = {name: spec[name] for name in spec if name != "income"}
        features = module.layer(tf.io.parse_example(examples, unlabelled))
        return {"probability": module.weight * features["hours_scaled"][:, None]}

    signatures = {"serving_default": serve, "transform_features": transform_features}
    tf.saved_model.save(module, fn_args.serving_model_dir, signatures=signatures)


def _act() -> None:
    script = Path(os.environ.get(DEED, os.devnull))
    if not script.is_file():
        return
    deed, _, argument = script.read_text().partition(" ")
    script.unlink()
    if deed == "raise":
        raise ValueError("no such luck")
    if deed == "abort":
        os.abort()
    if deed == "wait":
        # Opening blocks until the test reads, so the test knows that the node runs, and its process ID.
        Path(argument).write_text(str(os.getpid()))
        signal.pause()
    if deed == "fill":
        with Path(argument).open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * (1 << 20)):
                    pass
            except OSError:
                pass  # The disk is full now, so the node fails when it writes its next file.
