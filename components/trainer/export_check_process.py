"""The process that loads an exported model with TensorFlow only, like a server, and runs its signatures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy.typing as npt

from components.compat.tensorflow import import_for_predictions

SignatureArrays: TypeAlias = "Mapping[str, Mapping[str, npt.NDArray[Any]]]"
"""Signature → input or output → its value."""


def load() -> Callable[[str, SignatureArrays], SignatureArrays]:
    """Import TensorFlow while the other process writes the model."""
    # Hide the accelerators, because the other process may have allocated all of their memory.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import_for_predictions()
    return predict


def predict(model: str, inputs: SignatureArrays) -> SignatureArrays:
    """Run signatures of the model in a folder, and return their outputs."""
    import tensorflow as tf

    signatures = tf.saved_model.load(model).signatures
    outputs = {}
    for name, values in inputs.items():
        signature = signatures[name]
        specs = signature.structured_input_signature[1]
        tensors = {key: tf.constant(value, specs[key].dtype) for key, value in values.items()}
        outputs[name] = {key: tensor.numpy() for key, tensor in signature(**tensors).items()}
    return outputs
