"""Decodes the encoded images of transformed examples to the pixels that a network reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from components.features.config import FeaturesConfig
from components.features.image_ops import Image
from components.features.image_orientation import upright

_PARALLEL = 16
"""Images of a batch that are decoded at the same time."""


def images(features: FeaturesConfig) -> dict[str, Image]:
    """Return the operations whose transformed feature is an encoded image, by the feature's name."""
    return {feature.name: feature.op for feature in features.declared if isinstance(feature.op, Image)}


def decoded(operations: Mapping[str, Image], features: Mapping[str, Any]) -> dict[str, Any]:
    """Replace encoded images by their pixels.

    Args:
      operations: See `images`.
      features: Transformed features; encoded images are string, [batch], empty where they are missing.

    Returns:
      The features; those of images float32 in [0, 1], [batch, height * width * channels].

    Raises:
      tf.errors.InvalidArgumentError: When it is run, about bytes that are no image.
    """
    return unpacked(operations, _each(operations, features, lambda op, values: _pixels(op, values, tf.float32)))


def packed(operations: Mapping[str, Image], features: Mapping[str, Any]) -> dict[str, Any]:
    """Replace encoded images by their pixels, rounded to whole numbers, so that they take a quarter of the memory.

    Args:
      operations: See `images`.
      features: As for `decoded`.

    Returns:
      The features; those of images uint8, [batch, height * width * channels].

    Raises:
      tf.errors.InvalidArgumentError: As `decoded`.
    """
    return _each(operations, features, lambda op, values: _pixels(op, values, tf.uint8))


def unpacked(operations: Mapping[str, Image], features: Mapping[str, Any]) -> dict[str, Any]:
    """Convert pixels of [0, 255], as `packed` returns them, to those of `decoded`."""
    return _each(operations, features, lambda _, values: tf.cast(values, tf.float32) / 255.0)


def row_bytes(operations: Mapping[str, Image]) -> int:
    """Return the size of the packed pixels of a row."""
    return sum(op.height * op.width * op.channels for op in operations.values())


def _each(
    operations: Mapping[str, Image], features: Mapping[str, Any], change: Callable[[Image, tf.Tensor], tf.Tensor]
) -> dict[str, Any]:
    """Replace the features of images."""
    return {
        name: change(operations[name], values) if name in operations else values for name, values in features.items()
    }


def _pixels(op: Image, encoded: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return pixels in [0, 255], rounded if the dtype is that of whole numbers."""
    shape = [op.height, op.width, op.channels]

    def resized(data: tf.Tensor) -> tf.Tensor:
        image = upright(tf.io.decode_image(data, channels=op.channels, expand_animations=False), data)
        pixels = tf.ensure_shape(tf.image.resize(tf.cast(image, tf.float32), shape[:2], antialias=True), shape)
        return tf.cast(tf.round(pixels) if dtype.is_integer else pixels, dtype)

    def one(data: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.equal(tf.strings.length(data), 0), lambda: tf.zeros(shape, dtype), lambda: resized(data))

    spec = tf.TensorSpec(shape, dtype)
    pixels = tf.map_fn(one, encoded, fn_output_signature=spec, parallel_iterations=_PARALLEL)
    return tf.reshape(pixels, [-1, op.height * op.width * op.channels])
