"""Models for images: cnn, and the networks of tf_keras.applications."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.models import layers as parts
from components.models.config import ModelConfig
from components.models.inputs import Inputs

layers = tf_keras.layers

APPLICATION = "application"
"""How the names of the layers begin that are networks of tf_keras.applications."""
_LARGE = 64
"""Height or width from which a cnn begins with a quarter of it."""

Backbone = Callable[[str, tf.Tensor], tf.Tensor]
"""(name of the feature, image [batch, height, width, channels]) → [batch, width]."""


def cnn(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a residual network with identity shortcuts before the activation (He et al. 2016, Identity Mappings in Deep
    Residual Networks).

    It normalizes by group (Wu & He 2018, Group Normalization), so that neither the batch size nor the number of
    replicas matters, and training and prediction compute the same.
    """
    return _with_backbone(config, inputs, outputs, lambda name, image: _residual(config, name, image))


def application(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Return a network of tf_keras.applications, without its top.

    With weights from a file its batch normalization keeps their moments, as is usual in fine-tuning.

    Raises:
      InputError: there is no such network, the weights are not its weights, or it does not take the image's size.
    """
    module, function = _application(str(config.application))

    def backbone(name: str, image: tf.Tensor) -> tf.Tensor:
        network = _built(function, tuple(image.shape[1:]), config)
        network._name = f"{APPLICATION}_{name}"
        scaled = layers.Lambda(lambda pixels: module.preprocess_input(255.0 * pixels), name=f"{name}_scaled")(image)
        # None: as the model that it is a part of.
        return network(scaled, training=False if config.weights else None)

    return _with_backbone(config, inputs, outputs, backbone)


def _with_backbone(config: ModelConfig, inputs: Inputs, outputs: int, backbone: Backbone) -> tf_keras.Model:
    tensors = parts.input_layers(inputs)
    shapes = {name: numbers.image for name, numbers in inputs.dense.items() if numbers.image}
    pooled = [
        backbone(name, layers.Reshape(shape, name=f"{name}_pixels")(tensors[name])) for name, shape in shapes.items()
    ]
    image = parts.concatenated(pooled, "images")
    others = Inputs({name: spec for name, spec in inputs.features.items() if name not in shapes})
    if others.features:
        both = parts.concatenated([image, parts.features(config, others, tensors)], "images_and_features")
        image = parts.hidden("hidden", config, both)
    elif config.dropout:
        image = layers.Dropout(config.dropout, name="images_dropout")(image)
    return tf_keras.Model(tensors, parts.logits(outputs, image), name=config.kind)


def _residual(config: ModelConfig, name: str, image: tf.Tensor) -> tf.Tensor:
    first, *more = config.filters
    below = image
    if min(image.shape[1:3]) > _LARGE:
        below = layers.Conv2D(first, 7, strides=2, padding="same", name=f"{name}_first")(below)
        below = layers.MaxPool2D(3, strides=2, padding="same", name=f"{name}_first_pool")(below)
    else:
        below = layers.Conv2D(first, 3, padding="same", name=f"{name}_first")(below)
    below = _block(f"{name}_0", first, 1, below)
    for number, filters in enumerate(more, 1):
        below = _block(f"{name}_{number}", filters, 2, below)
    return layers.GlobalAveragePooling2D(name=f"{name}_mean")(_activated(f"{name}_last", below))


def _block(name: str, filters: int, strides: int, below: tf.Tensor) -> tf.Tensor:
    activated = _activated(f"{name}_a", below)
    shortcut = below
    if strides > 1 or below.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides=strides, padding="same", name=f"{name}_shortcut")(activated)
    inner = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False, name=f"{name}_conv_a")(activated)
    inner = layers.Conv2D(filters, 3, padding="same", name=f"{name}_conv_b")(_activated(f"{name}_b", inner))
    return layers.Add(name=f"{name}_sum")([shortcut, inner])


def _activated(name: str, below: tf.Tensor) -> tf.Tensor:
    groups = math.gcd(8, below.shape[-1])
    return layers.ReLU(name=f"{name}_relu")(layers.GroupNormalization(groups, name=f"{name}_norm")(below))


def _application(name: str) -> tuple[ModuleType, Callable[..., tf_keras.Model]]:
    """Find the module and the function of a network."""
    found = {
        each: (module, function)
        for _, module in inspect.getmembers(tf_keras.applications, inspect.ismodule)
        if hasattr(module, "preprocess_input")
        for each, function in inspect.getmembers(module, inspect.isfunction)
        if each[0].isupper()
    }
    if name not in found:
        raise InputError(
            f"model.application: tf_keras.applications has no {name!r}{did_you_mean(name, found)}",
            f"choose one of {', '.join(sorted(found))}",
        )
    return found[name]


def _built(function: Callable[..., tf_keras.Model], shape: tuple[int, ...], config: ModelConfig) -> tf_keras.Model:
    options: dict[str, Any] = {"include_top": False, "weights": None, "pooling": "avg", "input_shape": shape}
    try:
        network = function(**options)
    except ValueError as error:
        raise InputError(
            f"model.application: {config.application} does not take images of {shape}: {error}",
            "choose another height and width of the operation image",
        ) from error
    if config.weights:
        try:
            network.load_weights(config.weights)
        except (OSError, ValueError) as error:
            raise InputError(
                f"model.weights: expected the weights of {config.application} without its top in {config.weights}, "
                f"received another file: {error}",
                "write the file with save_weights of the network made with include_top=False, pooling='avg'",
            ) from error
    return network


def frozen_variables(network: tf_keras.Model) -> frozenset[int]:
    """Return the ids of the trainable variables that `model.frozen_steps` freezes: those of the applications."""
    applications = [each for each in network.submodules if each.name.startswith(f"{APPLICATION}_")]
    networks = [each for each in applications if isinstance(each, tf_keras.Model)]
    return frozenset(id(variable) for each in networks for variable in each.trainable_variables)
