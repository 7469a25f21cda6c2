"""Models for images: cnn, and the networks of tf_keras.applications."""

from __future__ import annotations

import functools
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
"""Prefix of the names of layers that are networks of tf_keras.applications."""
_LARGE = 64
"""Height and width above which a cnn first reduces the image to a quarter of its height and width."""

Backbone = Callable[[str, tf.Tensor], tf.Tensor]
"""Function (name of the feature, image of shape [batch, height, width, channels]) → tensor of shape [batch, width]."""


def cnn(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a residual network with identity shortcuts before the activation (He et al. 2016, Identity Mappings in Deep
    Residual Networks).

    It uses group normalization (Wu & He 2018, Group Normalization), so that the result depends neither on the batch
    size nor on the number of replicas, and training and prediction compute the same function.
    """
    return _build_on_backbone(config, inputs, outputs, lambda name, image: _residual(config, name, image))


def application(config: ModelConfig, inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build on a network of tf_keras.applications without its top.

    With weights from a file, batch normalization keeps the moments in the file, as is usual in fine-tuning.

    Raises:
      InputError: If the network does not exist, the weights belong to another network, or it does not support the size
        of the image.
    """
    module, function = _find_application(str(config.application))

    def backbone(name: str, image: tf.Tensor) -> tf.Tensor:
        network = _build_application(function, tuple(image.shape[1:]), config)
        network._name = f"{APPLICATION}_{name}"
        scaled = layers.Lambda(lambda pixels: module.preprocess_input(255.0 * pixels), name=f"{name}_scaled")(image)
        # With training=None, the network uses the mode of the model that contains it.
        return network(scaled, training=False if config.weights else None)

    return _build_on_backbone(config, inputs, outputs, backbone)


def _build_on_backbone(config: ModelConfig, inputs: Inputs, outputs: int, backbone: Backbone) -> tf_keras.Model:
    tensors = parts.input_layers(inputs)
    shapes = {name: numbers.image for name, numbers in inputs.dense.items() if numbers.image}
    pooled = [
        backbone(name, layers.Reshape(shape, name=f"{name}_pixels")(tensors[name])) for name, shape in shapes.items()
    ]
    image = parts.concatenate(pooled, "images")
    other_inputs = Inputs({name: spec for name, spec in inputs.features.items() if name not in shapes})
    if other_inputs.features:
        features = parts.features(config, other_inputs, tensors)
        image = parts.hidden("hidden", config, parts.concatenate([image, features], "images_and_features"))
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
    return layers.GlobalAveragePooling2D(name=f"{name}_mean")(_activate(f"{name}_last", below))


def _block(name: str, filters: int, strides: int, below: tf.Tensor) -> tf.Tensor:
    activated = _activate(f"{name}_a", below)
    shortcut = below
    if strides > 1 or below.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides=strides, padding="same", name=f"{name}_shortcut")(activated)
    inner = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False, name=f"{name}_conv_a")(activated)
    inner = layers.Conv2D(filters, 3, padding="same", name=f"{name}_conv_b")(_activate(f"{name}_b", inner))
    return layers.Add(name=f"{name}_sum")([shortcut, inner])


def _activate(name: str, below: tf.Tensor) -> tf.Tensor:
    groups = math.gcd(8, below.shape[-1])
    return layers.ReLU(name=f"{name}_relu")(layers.GroupNormalization(groups, name=f"{name}_norm")(below))


def _find_application(name: str) -> tuple[ModuleType, Callable[..., tf_keras.Model]]:
    """Find the module and the function of a network by name."""
    applications = {
        function_name: (module, function)
        for _, module in inspect.getmembers(tf_keras.applications, inspect.ismodule)
        if hasattr(module, "preprocess_input")
        for function_name, function in inspect.getmembers(module, inspect.isfunction)
        if function_name[0].isupper()
    }
    if name not in applications:
        raise InputError(
            f"model.application: tf_keras.applications has no {name!r}{did_you_mean(name, applications)}",
            f"choose one of {', '.join(sorted(applications))}",
        )
    return applications[name]


def _build_application(
    function: Callable[..., tf_keras.Model], shape: tuple[int, ...], config: ModelConfig
) -> tf_keras.Model:
    options: dict[str, Any] = {"include_top": False, "weights": None, "pooling": "avg", "input_shape": shape}
    policy = tf_keras.mixed_precision.global_policy()
    create = functools.partial(function, **options)
    try:
        network = create() if policy.name == "float32" else _create_in_16_bits(create, policy)
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
                "write the file with save_weights of a network created with include_top=False, pooling='avg'",
            ) from error
    return network


def _create_in_16_bits(create: Callable[[], tf_keras.Model], policy: tf_keras.mixed_precision.Policy) -> tf_keras.Model:
    """Create a network whose variables are all float32 under a mixed precision policy.

    The moments of tf_keras' Normalization have the dtype of the computations. In 16 bits they would be inexact, and the
    workers of MultiWorkerMirroredStrategy could not exchange them. A network with such moments is created in 32 bits,
    and copied.
    """
    tf_keras.mixed_precision.set_global_policy("float32")
    try:
        whole = create()
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)
    if not any(isinstance(layer, layers.Normalization) and layer.weights for layer in whole.layers):
        return create()

    def copy(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        dtype = "float32" if isinstance(layer, layers.Normalization) else policy.name
        return type(layer).from_config(layer.get_config() | {"dtype": dtype})

    return tf_keras.models.clone_model(whole, clone_function=copy)


def frozen_variables(network: tf_keras.Model) -> frozenset[int]:
    """Return the Python ids of the variables that `model.frozen_steps` freezes, which belong to the applications."""
    applications = [module for module in network.submodules if module.name.startswith(f"{APPLICATION}_")]
    networks = [module for module in applications if isinstance(module, tf_keras.Model)]
    return frozenset(id(variable) for application in networks for variable in application.trainable_variables)
