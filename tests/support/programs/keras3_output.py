"""Reads the outputs of a training of Keras 3: the exported model, and a Keras 3 model with the checkpoint's weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.support.runs.trainer_runs import Prepared, eval_examples

LAYER = "network/layer_with_weights-0"
"""The layer of a checkpoint that holds the variables of a Keras 3 model."""


def serve(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """Return the labels, the network's inputs, and the predictions of all signatures, without Keras 3."""
    sys.modules["keras"] = None  # type: ignore[assignment]
    assert not any(name.startswith("keras3_code") for name in sys.modules)
    import tensorflow as tf

    rows = eval_examples(prepared.uri("ExampleGen", "examples"))
    signatures = tf.saved_model.load(str(folder / "model" / "Format-Serving")).signatures
    examples = tf.constant(rows)
    features = signatures["transform_features"](examples=examples)
    specs = signatures["raw"].structured_input_signature[1]
    columns = _read_columns(rows, specs)
    (label,) = signatures["transform_labels"](examples=examples).values()
    predictions = {
        "serving_default": signatures["serving_default"](examples=examples),
        "raw": signatures["raw"](**columns),
        "transformed": signatures["transformed"](
            **{name: features[name] for name in signatures["transformed"].structured_input_signature[1]}
        ),
    }
    return {
        "label": label.numpy().ravel(),
        "features": {name: tensor.numpy() for name, tensor in features.items()},
        "predictions": {name: outputs["probability"].numpy().ravel() for name, outputs in predictions.items()},
    }


def predict(file: Path, prepared: Prepared, checkpoint: str, features: dict[str, Any]) -> dict[str, Any]:
    """Return the logits that Keras 3 predicts with the weights of a checkpoint, and these weights by their paths."""
    import runpy

    import tensorflow as tf
    import tensorflow_transform as tft

    from components.features.plan import FeaturePlan
    from components.models.inputs import inputs
    from pipeline.authoring.config import load

    config = load(prepared.config).config
    plan = FeaturePlan(features=config.features, labels=config.data.declared_labels, task=config.data.task)
    sizes = tft.TFTransformOutput(prepared.uri("Transform", "transform_graph")).vocabulary_size_by_name
    model = runpy.run_path(str(file))["build"](inputs(plan, sizes), 1)
    reader = tf.train.load_checkpoint(checkpoint)
    keys = {f"_trained/{number}": variable for number, variable in enumerate(model.trainable_variables)}
    # A slash in the name of a variable is escaped.
    keys |= {variable.path.replace("/", ".S"): variable for variable in model.non_trainable_variables}
    for key, variable in keys.items():
        variable.assign(reader.get_tensor(f"{LAYER}/{key}/.ATTRIBUTES/VARIABLE_VALUE"))
    logits = model.predict({tensor.name: features[tensor.name] for tensor in model.inputs}, batch_size=512, verbose=0)
    return {"logits": logits.ravel(), "weights": {variable.path: variable.numpy() for variable in model.variables}}


def _read_columns(rows: list[bytes], specs: Any) -> dict[str, Any]:
    """Return the columns of serialized tf.Examples as tensors of the signature `raw`."""
    import numpy as np
    import tensorflow as tf

    from components.trainer.probe_rows import MISSING_INT

    missing = {tf.string: b"", tf.float32: np.nan, tf.int64: MISSING_INT}
    columns: dict[str, list[Any]] = {name: [] for name in specs}
    for row in rows:
        feature = tf.train.Example.FromString(row).features.feature
        for name, values in columns.items():
            kind = feature[name].WhichOneof("kind")
            present = getattr(feature[name], kind).value if kind else ()
            values.append(present[0] if present else missing[specs[name].dtype])
    return {name: tf.constant(values, specs[name].dtype) for name, values in columns.items()}
