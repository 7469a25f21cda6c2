"""Build the network that the `model` section declares, or call the user's function that builds it."""

from __future__ import annotations

import tf_keras

from components.base import user_code
from components.base.errors import InputError
from components.base.names import did_you_mean
from components.features.feature_spec import Dense, Ids
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
    network = user_code.call(config.build, inputs, outputs)
    if received := _describe_mismatch(network, inputs, outputs):
        raise InputError(
            f"{config.build}: expected a tf_keras.Model from features to logits, float32 [batch, {outputs}]; "
            f"{received}",
            "fix the function; docs/how-to/own-code.md has an example",
        )
    return network


def _describe_mismatch(network: object, inputs: Inputs, outputs: int) -> str:
    """Describe why a network of the user's function is not valid; return "" if it is."""
    if not isinstance(network, tf_keras.Model):
        kind = type(network)
        hint = "; import tf_keras, not keras" if kind.__module__.partition(".")[0] == "keras" else ""
        return f"received {kind.__module__}.{kind.__qualname__}{hint}"
    if not network.inputs:
        return "received a model without symbolic inputs; create it with tf_keras.Model(inputs, outputs)"
    for tensor in network.inputs:
        if tensor.name not in inputs.features:
            return f"its input {tensor.name!r} is not a feature{did_you_mean(tensor.name, inputs.features)}"
        feature = inputs.features[tensor.name]
        shape, width = tuple(tensor.shape[1:]), _width(feature)
        if shape not in ({(), (1,)} if width == 1 else {(width,)}):
            return f"its input {tensor.name!r} has shape {[None, *shape]}, and the feature [None, {width}]"
        if isinstance(feature, Ids) and not tensor.dtype.is_integer:
            return f"its input {tensor.name!r} is {tensor.dtype.name}, and the feature is int64 ids"
    if not hasattr(network.output, "shape") or tuple(network.output.shape) != (None, outputs):
        return f"its output has shape {getattr(network, 'output_shape', None)}"
    if network.output.dtype != "float32":
        return f"its output is {network.output.dtype.name}; give its last layer dtype='float32'"
    for variable in network.variables:
        if variable.dtype.is_floating and variable.dtype != "float32":
            return f"its variable {variable.name} is {variable.dtype.name}; give its layer dtype='float32'"
    return ""


def _width(feature: Dense | Ids) -> int:
    return feature.width if isinstance(feature, Dense) else feature.values
