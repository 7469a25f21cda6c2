"""Random changes of the images in a batch, determined by the seed and the number of the batch."""

from __future__ import annotations

import tensorflow as tf

from components.features.image_ops import Image
from components.trainer.config import AugmentationConfig
from components.trainer.input_columns import Columns
from components.trainer.input_pipeline import Batch

_ERASED = (0.1, 0.4)
"""Minimum and maximum length of the erased rectangle's side, as a share of the image's side."""
_GREY = 0.5


def augment(operations: dict[str, Image], config: AugmentationConfig, batch: Batch, seed: tf.Tensor) -> Batch:
    """Change the images of a batch at random.

    Args:
      operations: Feature → its image operation, see `images.images`.
      config: The kinds of changes.
      batch: A batch as the network reads it; pixels are float32 in [0, 1], [batch, height * width * channels].
      seed: int64, [2].

    Returns:
      The batch; pixels are still in [0, 1]. With mixup, the rows are blended; see `Batch` for their labels and weights.
    """
    features, *targets = batch
    changed = _change(operations, config, features, seed)
    if not config.mixup:
        return changed, *targets
    mixup_seed = tf.random.experimental.stateless_fold_in(seed, len(operations))
    return _blend(operations, config.mixup, changed, mixup_seed, *targets)


def _change(operations: dict[str, Image], config: AugmentationConfig, features: Columns, seed: tf.Tensor) -> Columns:
    changed = dict(features)
    for number, (name, op) in enumerate(operations.items()):
        pixels = tf.reshape(features[name], [-1, op.height, op.width, op.channels])
        seeds = tf.random.experimental.stateless_split(tf.random.experimental.stateless_fold_in(seed, number), 3)
        if config.flip or config.crop:
            pixels = _crop(config, pixels, seeds[0])
        if config.colour:
            pixels = _change_colours(config.colour, pixels, seeds[1])
        if config.erase:
            pixels = _erase(config.erase, pixels, seeds[2])
        changed[name] = tf.reshape(pixels, [-1, op.height * op.width * op.channels])
    return changed


def _blend(
    operations: dict[str, Image],
    alpha: float,
    features: Columns,
    seed: tf.Tensor,
    label: tf.Tensor,
    weight: tf.Tensor | None = None,
) -> Batch:
    """Blend each row with the previous row; the rows of a batch are in random order."""
    # Gamma variates with a small alpha are so small that float32 rounds most of them to 0. If both are 0, the
    # previous row replaces the row.
    first, second = tf.unstack(tf.random.stateless_gamma([2, tf.shape(label)[0]], seed, alpha, dtype=tf.float64), 2)
    share = tf.cast(tf.math.divide_no_nan(first, first + second), tf.float32)
    pixels = share[:, tf.newaxis]
    blended = {
        name: pixels * values + (1 - pixels) * tf.roll(values, 1, axis=0) if name in operations else values
        for name, values in features.items()
    }
    weights = tf.ones_like(share) if weight is None else weight
    shares = tf.stack([share * weights, (1 - share) * tf.roll(weights, 1, axis=0)], axis=1)
    return blended, tf.concat([label, tf.roll(label, 1, axis=0)], axis=1), shares


def _draw_uniform(pixels: tf.Tensor, seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Return `count` numbers in [0, 1) for each image, [batch]."""
    return tf.unstack(tf.random.stateless_uniform([count, tf.shape(pixels)[0]], seed), count)  # type: ignore[no-any-return]


def _crop(config: AugmentationConfig, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    share, start_y, start_x, mirrored = _draw_uniform(pixels, seed, 4)
    cut = share * config.crop
    start_y, start_x = start_y * cut, start_x * cut
    bottom, right = start_y + 1 - cut, start_x + 1 - cut
    # A box whose left edge is right of its right edge mirrors the image.
    swap = tf.logical_and(config.flip, mirrored < 0.5)
    boxes = tf.stack([start_y, tf.where(swap, right, start_x), bottom, tf.where(swap, start_x, right)], axis=1)
    return tf.image.crop_and_resize(pixels, boxes, tf.range(tf.shape(pixels)[0]), pixels.shape[1:3])


def _change_colours(most: float, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    brightness, contrast, saturation = (
        (most * (2 * noise - 1))[:, tf.newaxis, tf.newaxis, tf.newaxis] for noise in _draw_uniform(pixels, seed, 3)
    )
    if pixels.shape[-1] == 3:
        grey = tf.image.rgb_to_grayscale(pixels)
        pixels = grey + (1 + saturation) * (pixels - grey)
    mean = tf.reduce_mean(pixels, axis=[1, 2], keepdims=True)
    return tf.clip_by_value(mean + (1 + contrast) * (pixels - mean) + brightness, 0.0, 1.0)


def _erase(share: float, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    chosen, height, width, start_y, start_x = _draw_uniform(pixels, seed, 5)
    low, high = _ERASED

    def inside(size: int, extent: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        extent = low + (high - low) * extent
        start = (start * (1 - extent))[:, tf.newaxis]
        centres = (tf.range(size, dtype=tf.float32) + 0.5) / size
        return tf.logical_and(centres >= start, centres < start + extent[:, tf.newaxis])

    rows, columns = inside(pixels.shape[1], height, start_y), inside(pixels.shape[2], width, start_x)
    erased = tf.logical_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis, :])
    erased = tf.logical_and(erased, (chosen < share)[:, tf.newaxis, tf.newaxis])
    return tf.where(erased[..., tf.newaxis], _GREY, pixels)
