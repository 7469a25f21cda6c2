"""Tests of image augmentation: the effect of every kind, and that a batch number always gives the same changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from components.features.image_ops import Image
from components.trainer.augmentation import augment
from components.trainer.config import AugmentationConfig
from tests.support.data.tolerances import rounding

pytestmark = pytest.mark.both_lines

HEIGHT, WIDTH, CHANNELS = 12, 16, 3
ROWS = 64
OP = Image(height=HEIGHT, width=WIDTH, channels=CHANNELS)
IMAGES = np.random.default_rng(0).random((ROWS, HEIGHT, WIDTH, CHANNELS)).astype(np.float32)


def change(images: npt.NDArray[np.float32] = IMAGES, number: int = 0, **config: Any) -> npt.NDArray[np.float32]:
    features = {"photo": tf.constant(images.reshape(len(images), -1)), "age": tf.range(len(images))}
    label = tf.zeros([len(images), 1], tf.int64)
    seed = tf.constant([1, number], tf.int64)
    augmented, *labels = augment({"photo": OP}, AugmentationConfig(**config), (features, label), seed)
    assert augmented["age"] is features["age"]
    assert labels == [label]
    return augmented["photo"].numpy().reshape(images.shape)


@pytest.mark.parametrize("config", [{"flip": True}, {"crop": 0.3}, {"colour": 0.3}, {"erase": 0.5}])
def test_changes_depend_only_on_the_number_of_the_batch(config: dict[str, Any]) -> None:
    first = change(number=3, **config)
    assert first.min() >= 0
    assert first.max() <= 1
    np.testing.assert_array_equal(first, change(number=3, **config))
    assert (first != change(number=4, **config)).any()
    assert (first != IMAGES).any()


def test_half_of_the_images_are_mirrored() -> None:
    changed = change(flip=True)
    mirrored = np.isclose(changed, IMAGES[:, :, ::-1], atol=1e-5).all(axis=(1, 2, 3))
    same = np.isclose(changed, IMAGES, atol=1e-5).all(axis=(1, 2, 3))
    assert (mirrored ^ same).all()
    assert 0.25 < mirrored.mean() < 0.75


def test_crop_stays_within_the_image_and_the_configured_share() -> None:
    row = np.linspace(0, 1, WIDTH, dtype=np.float32)
    ramp = np.broadcast_to(row[np.newaxis, np.newaxis, :, np.newaxis], IMAGES.shape)
    changed = change(np.ascontiguousarray(ramp), crop=0.4)
    extents = changed[:, 0, -1, 0] - changed[:, 0, 0, 0]
    assert extents.min() >= 0.6 - 1e-5
    assert extents.max() <= 1
    assert extents.std() > 0.05


def test_colour_of_grey_images_changes_by_at_most_the_configured_share() -> None:
    changed = change(np.full_like(IMAGES, 0.5), colour=0.2)
    assert np.ptp(changed, axis=(1, 2, 3)).max() < 1e-5
    assert 0.1 < np.abs(changed - 0.5).max() <= 0.2 + 1e-5


def test_erased_rectangles_are_grey() -> None:
    changed = change(np.zeros_like(IMAGES), erase=0.5)
    assert set(np.unique(changed)) == {0.0, 0.5}
    shares = changed[..., 0].mean(axis=(1, 2)) / 0.5
    assert 0.25 < (shares > 0).mean() < 0.75
    assert shares.max() <= 0.5**2
    assert shares[shares > 0].min() > 0


def test_two_images_in_a_row_are_changed_differently() -> None:
    pixels = tf.constant(IMAGES.reshape(ROWS, -1))
    seed = tf.constant([1, 1], tf.int64)
    batch = {"a": pixels, "b": pixels}, tf.zeros([ROWS, 1], tf.int64)
    augmented, _ = augment({"a": OP, "b": OP}, AugmentationConfig(flip=True), batch, seed)
    assert (augmented["a"].numpy() != augmented["b"].numpy()).any()


def blend(alpha: float, number: int = 0, weight: npt.NDArray[np.float32] | None = None) -> Any:
    batch = {"photo": tf.constant(IMAGES.reshape(ROWS, -1))}, tf.range(ROWS, dtype=tf.int64)[:, tf.newaxis]
    weights = [] if weight is None else [tf.constant(weight)]
    seed = tf.constant([1, number], tf.int64)
    features, *label_and_shares = augment({"photo": OP}, AugmentationConfig(mixup=alpha), (*batch, *weights), seed)
    return features["photo"].numpy(), *(tensor.numpy() for tensor in label_and_shares)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 5.0])
def test_blended_image_has_the_labels_and_shares_of_both_images(alpha: float) -> None:
    pixels, label, shares = blend(alpha)
    assert (label[:, 0] == np.arange(ROWS)).all()
    assert (label[:, 0] != label[:, 1]).all()
    rounding(4).assert_close(shares.sum(axis=1), 1)
    images = IMAGES.reshape(ROWS, -1)[label]
    np.testing.assert_allclose(pixels, (images * shares[..., np.newaxis]).sum(axis=1), atol=1e-6)
    deviation = 0.5 / np.sqrt(2 * alpha + 1)
    assert shares[:, 0].std() == pytest.approx(deviation, rel=0.3, abs=1e-3)
    again = blend(alpha)
    assert all((first == second).all() for first, second in zip((pixels, label, shares), again, strict=True))
    assert (blend(alpha, number=1)[2] != shares).any()


def test_shares_are_multiplied_by_the_weights_of_the_rows() -> None:
    weight = np.linspace(0, 2, ROWS, dtype=np.float32)
    _, label, shares = blend(0.3)
    _, _, weighted = blend(0.3, weight=weight)
    rounding(4).assert_close(weighted, shares * weight[label])
