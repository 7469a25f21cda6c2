"""Decode the encoded images of transformed examples to the pixels that a network reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from components.features.config import FeaturesConfig
from components.features.image_ops import Image
from components.features.image_orientation import orientations, turn_upright

_PARALLEL = 16
"""Number of images of a batch that are decoded in parallel."""


def images(features: FeaturesConfig) -> dict[str, Image]:
    """Return feature name → operation `image`, for the features that are encoded images."""
    return {feature.name: feature.op for feature in features.declared if isinstance(feature.op, Image)}


def decode(operations: Mapping[str, Image], features: Mapping[str, Any]) -> dict[str, Any]:
    """Replace encoded images by their pixels.

    Args:
      operations: Feature name → operation; see `images`.
      features: Transformed features. Encoded images are strings of shape [batch], empty if they are missing.

    Returns:
      The features. Images are float32 in [0, 1], shape [batch, height * width * channels].

    Raises:
      tf.errors.InvalidArgumentError: If the bytes are not an image; raised when the graph runs.
    """
    return unpack(operations, _map_images(operations, features, lambda op, values: _pixels(op, values, tf.float32)))


def pack(operations: Mapping[str, Image], features: Mapping[str, Any]) -> dict[str, Any]:
    """Replace encoded images by pixels that are rounded to integers, which need a quarter of the memory.

    Args:
      operations: Feature name → operation; see `images`.
      features: Transformed features. Encoded images are strings of shape [batch], empty if they are missing.

    Returns:
      The features. Images are uint8, shape [batch, height * width * channels].

    Raises:
      tf.errors.InvalidArgumentError: If the bytes are not an image; raised when the graph runs.
    """
    return _map_images(operations, features, lambda op, values: _pixels(op, values, tf.uint8))


def unpack(operations: Mapping[str, Image], features: Mapping[str, Any]) -> dict[str, Any]:
    """Convert pixels in [0, 255], as `pack` returns them, to pixels in [0, 1], as `decode` returns them."""
    return _map_images(operations, features, lambda _, values: tf.cast(values, tf.float32) / 255.0)


def row_bytes(operations: Mapping[str, Image]) -> int:
    """Return the bytes of a row's pixels in the form of `pack`."""
    return sum(op.height * op.width * op.channels for op in operations.values())


def _map_images(
    operations: Mapping[str, Image], features: Mapping[str, Any], change: Callable[[Image, tf.Tensor], tf.Tensor]
) -> dict[str, Any]:
    """Apply a function to the features that are images."""
    return {
        name: change(operations[name], values) if name in operations else values for name, values in features.items()
    }


def _pixels(op: Image, encoded: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return pixels in [0, 255], rounded if the dtype is an integer."""
    shape = [op.height, op.width, op.channels]

    def resize(data: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(data, channels=op.channels, expand_animations=False)
        image = turn_upright(image, orientation)
        pixels = tf.ensure_shape(tf.image.resize(tf.cast(image, tf.float32), shape[:2], antialias=True), shape)
        return tf.cast(tf.round(pixels) if dtype.is_integer else pixels, dtype)

    def decode_one(image: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        is_missing = tf.equal(tf.strings.length(image[0]), 0)
        return tf.cond(is_missing, lambda: tf.zeros(shape, dtype), lambda: resize(*image))

    spec = tf.TensorSpec(shape, dtype)
    images = encoded, orientations(encoded)
    pixels = tf.map_fn(decode_one, images, fn_output_signature=spec, parallel_iterations=_PARALLEL)
    return tf.reshape(pixels, [-1, op.height * op.width * op.channels])
