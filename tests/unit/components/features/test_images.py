"""Encoded images as pixels, and predictions of many images in parts."""

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


def encoded(pixels: npt.NDArray[np.uint8], format_: str = "PNG") -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, format_)
    return file.getvalue()


def noise(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def test_images_are_found_by_the_names_of_their_features() -> None:
    config = FeaturesConfig.model_validate({"columns": {"photo": {"image": {"height": 4, "width": 6}}, "age": "log"}})
    assert {name: op.width for name, op in images.images(config).items()} == {config.declared[0].name: 6}


def test_pixels_of_the_right_size_are_those_of_the_file_and_a_missing_image_is_black() -> None:
    pixels = noise(4, 6, 3)
    other = tf.constant([1, 2])
    found = images.decode({"photo": OP}, {"photo": tf.constant([encoded(pixels), b""]), "other": other})
    assert found["other"] is other
    assert found["photo"].dtype == tf.float32
    np.testing.assert_allclose(found["photo"][0], pixels.reshape(-1) / 255, atol=1e-6)
    assert not found["photo"][1].numpy().any()


@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_size_and_colour_is_converted(format_: str, channels: int) -> None:
    op = Image(height=4, width=6, channels=channels)
    files = tf.constant([encoded(np.full(shape, 128, np.uint8), format_) for shape in ((9, 5), (2, 2, 3), (64, 64, 3))])
    found = images.decode({"photo": op}, {"photo": files})["photo"]
    assert found.shape == (3, 4 * 6 * channels)
    np.testing.assert_allclose(found, 128 / 255, atol=0.02)


def test_packed_pixels_are_those_of_the_decoded_image_rounded() -> None:
    files = tf.constant([encoded(noise(4, 6, 3)), encoded(noise(9, 14, 3)), b""])
    found = images.pack({"photo": OP}, {"photo": files, "other": files})
    assert found["photo"].dtype == tf.uint8
    assert found["other"] is files
    assert found["photo"].shape == (3, images.row_bytes({"photo": OP}))
    pixels = images.unpack({"photo": OP}, found)["photo"].numpy()
    expected = images.decode({"photo": OP}, {"photo": files})["photo"].numpy()
    np.testing.assert_array_equal(pixels[[0, 2]], expected[[0, 2]])
    np.testing.assert_allclose(pixels[1], expected[1], atol=0.501 / 255)


def test_bytes_that_are_no_image_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        images.decode({"photo": OP}, {"photo": tf.constant([b"text"])})


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7])
def test_parts_of_a_batch_have_the_predictions_of_the_batch(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
        [encoded(np.full((4, 6, 3), each, np.uint8)) for each in range(rows)], shape=[rows], dtype=tf.string
    )
    found = in_parts(photos, tf.range(float(rows)))
    assert len(traced) == 1
    assert in_parts.get_concrete_function().structured_outputs["sum"].shape.as_list() == [None, 2]
    np.testing.assert_allclose(found["mean"], np.arange(rows) / 255, atol=1e-6)
    np.testing.assert_array_equal(found["sum"][:, 1], np.arange(rows) + 1)
