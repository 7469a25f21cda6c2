"""Random changes of the images of a batch, which follow from the seed and the number of the batch."""

from __future__ import annotations

import tensorflow as tf

from components.features.image_ops import Image
from components.trainer.config import AugmentationConfig
from components.trainer.input_columns import Columns

_ERASED = (0.1, 0.4)
"""The least and the greatest share of a side that is erased."""
_GREY = 0.5


def augmented(operations: dict[str, Image], config: AugmentationConfig, features: Columns, seed: tf.Tensor) -> Columns:
    """Changes the images of a batch.

    Args:
      operations: the images' features, see `images.images`.
      config: the kinds of changes.
      features: what the network reads; pixels are float32 in [0, 1], [batch, height * width * channels].
      seed: int64, [2].

    Returns:
      The features; pixels are still in [0, 1].
    """
    changed = dict(features)
    for number, (name, op) in enumerate(operations.items()):
        pixels = tf.reshape(features[name], [-1, op.height, op.width, op.channels])
        seeds = tf.random.experimental.stateless_split(tf.random.experimental.stateless_fold_in(seed, number), 3)
        if config.flip or config.crop:
            pixels = _cropped(config, pixels, seeds[0])
        if config.colour:
            pixels = _coloured(config.colour, pixels, seeds[1])
        if config.erase:
            pixels = _erased(config.erase, pixels, seeds[2])
        changed[name] = tf.reshape(pixels, [-1, op.height * op.width * op.channels])
    return changed


def _uniform(pixels: tf.Tensor, seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Returns `count` numbers in [0, 1) for each image, [batch]."""
    return tf.unstack(tf.random.stateless_uniform([count, tf.shape(pixels)[0]], seed), count)  # type: ignore[no-any-return]


def _cropped(config: AugmentationConfig, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    share, top, left, mirrored = _uniform(pixels, seed, 4)
    cut = share * config.crop
    top, left = top * cut, left * cut
    bottom, right = top + 1 - cut, left + 1 - cut
    # A box whose left side is right of its right side mirrors.
    swap = tf.logical_and(config.flip, mirrored < 0.5)
    boxes = tf.stack([top, tf.where(swap, right, left), bottom, tf.where(swap, left, right)], axis=1)
    return tf.image.crop_and_resize(pixels, boxes, tf.range(tf.shape(pixels)[0]), pixels.shape[1:3])


def _coloured(most: float, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    brightness, contrast, saturation = (
        (most * (2 * each - 1))[:, tf.newaxis, tf.newaxis, tf.newaxis] for each in _uniform(pixels, seed, 3)
    )
    if pixels.shape[-1] == 3:
        grey = tf.image.rgb_to_grayscale(pixels)
        pixels = grey + (1 + saturation) * (pixels - grey)
    mean = tf.reduce_mean(pixels, axis=[1, 2], keepdims=True)
    return tf.clip_by_value(mean + (1 + contrast) * (pixels - mean) + brightness, 0.0, 1.0)


def _erased(share: float, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    chosen, height, width, top, left = _uniform(pixels, seed, 5)
    low, high = _ERASED

    def inside(size: int, extent: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        extent = low + (high - low) * extent
        start = (start * (1 - extent))[:, tf.newaxis]
        centres = (tf.range(size, dtype=tf.float32) + 0.5) / size
        return tf.logical_and(centres >= start, centres < start + extent[:, tf.newaxis])

    rows, columns = inside(pixels.shape[1], height, top), inside(pixels.shape[2], width, left)
    erased = tf.logical_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis, :])
    erased = tf.logical_and(erased, (chosen < share)[:, tf.newaxis, tf.newaxis])
    return tf.where(erased[..., tf.newaxis], _GREY, pixels)
