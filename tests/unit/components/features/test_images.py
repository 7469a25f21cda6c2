"""Encoded images are decoded to pixels, and large batches are predicted in parts."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from components.features import compact, images
from components.features.compact import CompactFeatures
from components.features.config import FeaturesConfig
from components.features.image_ops import Image

pytestmark = pytest.mark.both_lines

OP = Image(height=4, width=6, channels=3)


def encode(pixels: npt.NDArray[np.uint8], format_: str = "PNG") -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, format_)
    return file.getvalue()


def noise(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def test_image_features_are_found_by_name() -> None:
    config = FeaturesConfig.model_validate({"columns": {"photo": {"image": {"height": 4, "width": 6}}, "age": "log"}})
    assert {name: op.width for name, op in images.images(config).items()} == {config.declared[0].name: 6}


def test_image_of_the_right_size_is_unchanged_and_a_missing_image_is_black() -> None:
    pixels = noise(4, 6, 3)
    unchanged = tf.constant([1, 2])
    decoded = images.decode({"photo": OP}, {"photo": tf.constant([encode(pixels), b""]), "other": unchanged})
    assert decoded["other"] is unchanged
    assert decoded["photo"].dtype == tf.float32
    np.testing.assert_allclose(decoded["photo"][0], pixels.reshape(-1) / 255, atol=1e-6)
    assert not decoded["photo"][1].numpy().any()


@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_every_size_and_colour_are_converted(format_: str, channels: int) -> None:
    op = Image(height=4, width=6, channels=channels)
    files = tf.constant([encode(np.full(shape, 128, np.uint8), format_) for shape in ((9, 5), (2, 2, 3), (64, 64, 3))])
    decoded = images.decode({"photo": op}, {"photo": files})["photo"]
    assert decoded.shape == (3, 4 * 6 * channels)
    np.testing.assert_allclose(decoded, 128 / 255, atol=0.02)


def test_packed_pixels_are_the_rounded_pixels() -> None:
    files = tf.constant([encode(noise(4, 6, 3)), encode(noise(9, 14, 3)), b""])
    packed = images.pack({"photo": OP}, {"photo": files, "other": files})
    assert packed["photo"].dtype == tf.uint8
    assert packed["other"] is files
    assert packed["photo"].shape == (3, images.row_bytes({"photo": OP}))
    pixels = images.unpack({"photo": OP}, packed)["photo"].numpy()
    expected = images.decode({"photo": OP}, {"photo": files})["photo"].numpy()
    np.testing.assert_array_equal(pixels[[0, 2]], expected[[0, 2]])
    np.testing.assert_allclose(pixels[1], expected[1], atol=0.501 / 255)


def test_bytes_that_are_not_an_image_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        images.decode({"photo": OP}, {"photo": tf.constant([b"text"])})


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7])
def test_batch_in_parts_has_the_same_predictions(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_PART_BYTES", 2 * 4 * 6 * 3 * 4)
    traced = []

    def predict(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        traced.append(features)
        pixels = images.decode({"photo": OP}, features)["photo"]
        return {"mean": tf.reduce_mean(pixels, axis=1), "sum": features["x"][:, tf.newaxis] + [0.0, 1.0]}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float32)])
    def in_parts(photo: tf.Tensor, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return CompactFeatures({"photo": OP}, {}).in_parts(predict, {"photo": photo, "x": x})

    photos = tf.constant(
        [encode(np.full((4, 6, 3), level, np.uint8)) for level in range(rows)], shape=[rows], dtype=tf.string
    )
    predictions = in_parts(photos, tf.range(float(rows)))
    assert len(traced) == 1
    assert in_parts.get_concrete_function().structured_outputs["sum"].shape.as_list() == [None, 2]
    np.testing.assert_allclose(predictions["mean"], np.arange(rows) / 255, atol=1e-6)
    np.testing.assert_array_equal(predictions["sum"][:, 1], np.arange(rows) + 1)
