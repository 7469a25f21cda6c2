"""Build the network that the `model` section declares, or call the user's function that builds it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from components.base import user_code
from components.base.errors import InputError
from components.base.names import did_you_mean
from components.features.feature_spec import Dense, Ids
from components.models import keras3
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import MODELS


def build(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network; see registry.Builder.

    Args:
      config: Section `model` of the config, with the kind of the network or the user's function.
      inputs: Transformed features.
      outputs: Number of logits.

    Raises:
      InputError: If the user's function failed, or did not return a valid network.
    """
    if config.build is None:
        network: tf_keras.Model = MODELS[config.kind](config, inputs, outputs)
        return network
    with keras3.building():
        network = user_code.call(config.build, inputs, outputs)
    if received := _describe_mismatch(network, inputs, outputs):
        raise InputError(
            f"{config.build}: expected a tf_keras.Model or a keras.Model from features to logits, float32 "
            f"[batch, {outputs}]; {received}",
            "fix the function; docs/how-to/own-code.md has an example",
        )
    return keras3.wrap(network) if keras3.is_model(network) else network


def _describe_mismatch(network: Any, inputs: Inputs, outputs: int) -> str:
    """Describe why a network of the user's function is not valid; return "" if it is."""
    if not (isinstance(network, tf_keras.Model) or keras3.is_model(network)):
        return f"received {type(network).__module__}.{type(network).__qualname__}"
    if not _has_inputs(network):
        package = "keras" if keras3.is_model(network) else "tf_keras"
        return f"received a model without symbolic inputs; create it with {package}.Model(inputs, outputs)"
    for tensor in network.inputs:
        if tensor.name not in inputs.features:
            return f"its input {tensor.name!r} is not a feature{did_you_mean(tensor.name, inputs.features)}"
        feature = inputs.features[tensor.name]
        shape, width = tuple(tensor.shape[1:]), _width(feature)
        if shape not in ({(), (1,)} if width == 1 else {(width,)}):
            return f"its input {tensor.name!r} has shape {[None, *shape]}, and the feature [None, {width}]"
        dtype = tf.as_dtype(tensor.dtype)
        if isinstance(feature, Ids) and not dtype.is_integer:
            return f"its input {tensor.name!r} is {dtype.name}, and the feature is int64 ids"
    shapes = [tuple(tensor.shape) for tensor in network.outputs]
    if shapes != [(None, outputs)]:
        return f"its output has shape {shapes[0] if len(shapes) == 1 else shapes}"
    if (output := tf.as_dtype(network.outputs[0].dtype)) != tf.float32:
        return f"its output is {output.name}; give its last layer dtype='float32'"
    for variable in network.variables:
        dtype = tf.as_dtype(variable.dtype)
        if dtype.is_floating and dtype != tf.float32:
            return f"its variable {variable.name} is {dtype.name}; give its layer dtype='float32'"
    return ""


def _has_inputs(network: Any) -> bool:
    try:
        return bool(network.inputs)
    except (AttributeError, ValueError):
        # A Sequential model of Keras 3 without an Input raises one of them, which depends on the version.
        return False


def _width(feature: Dense | Ids) -> int:
    return feature.width if isinstance(feature, Dense) else feature.values
