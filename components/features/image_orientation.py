"""Turn images upright in the graph, according to the tag Orientation in a JPEG's EXIF data.

Cameras store the pixels as the sensor reads them, and record how the camera was held in this tag. TensorFlow's decoder
ignores it.

Source: CIPA DC-008-2019 (EXIF 2.32), 4.5.4 and 4.6.4; TIFF 6.0 defines the eight values of the tag.
"""

from __future__ import annotations

import tensorflow as tf

_HEAD = 1 << 17
"""Bytes at the start of a file in which the segment of EXIF data begins. It follows the first marker."""
_EXIF, _SCAN, _END = 0xE1, 0xDA, 0xD9
"""Markers in a JPEG: segment of EXIF data, start of the pixels, end of the image."""
_TAG, _TAG_BYTES = 0x0112, 12
_LENGTH = [0, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0]
"""Mask of the length in the first bytes of a segment."""
_LONG = 4
"""Type of a tag whose value has 32 bits. Values of other types are read as 16 bits."""
_MOST_TAGS = 512


def turn_upright(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Rotate and mirror an image according to its orientation.

    Args:
      image: Decoded pixels; shape [height, width, channels].
      number: The orientation, see `orientations`; scalar int64.

    Returns:
      The upright pixels. With an orientation from 5 to 8, height and width are exchanged.
    """
    return tf.cond(tf.equal(number, 1), lambda: image, lambda: _turn(image, number))


def orientations(files: tf.Tensor) -> tf.Tensor:
    """Return the orientations of image files.

    The segments of all files are skipped in one loop, because a loop per file would take two thirds of the time
    of decoding a JPEG of 224 by 224 pixels.

    Args:
      files: Encoded files; strings of shape [batch].

    Returns:
      int64, shape [batch], from 1 to 8; 1 (upright) if a file lacks the tag.
    """
    sizes = tf.cast(tf.strings.length(files), tf.int64)

    def read(at: tf.Tensor, count: int) -> tf.Tensor:
        """Return the bytes at a position of each file, int64 of shape [batch, count]; bytes behind the end are 0."""
        pieces = tf.strings.substr(files, tf.minimum(at, sizes), tf.fill(tf.shape(at), tf.constant(count, tf.int64)))
        return tf.cast(tf.io.decode_raw(pieces, tf.uint8, fixed_length=count), tf.int64)

    def is_exif(at: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(tf.equal(read(at, 10) | _LENGTH, [0xFF, _EXIF, 0xFF, 0xFF, *b"Exif\0\0"]), axis=1)

    def is_before_exif(at: tf.Tensor) -> tf.Tensor:
        start, marker = tf.unstack(read(at, 2), axis=1)
        is_segment = (at + 4 < tf.minimum(sizes, _HEAD)) & tf.equal(start, 0xFF)
        return is_segment & (marker != _SCAN) & (marker != _END) & ~is_exif(at)

    def skip_segment(at: tf.Tensor) -> tuple[tf.Tensor]:
        return (tf.where(is_before_exif(at), at + 2 + tf.reduce_sum(read(at + 2, 2) * [256, 1], axis=1), at),)

    def read_tags() -> tf.Tensor:
        tiff = at + 10
        is_little = tf.equal(read(tiff, 1), ord("I"))

        def number(data: tf.Tensor) -> tf.Tensor:
            """Return the unsigned integers in the last axis."""
            weights = [256**position for position in range(data.shape[-1])]
            little = tf.reshape(is_little, [-1] + [1] * (data.shape.rank - 1))
            factors = tf.where(little, tf.constant(weights, tf.int64), tf.constant(weights[::-1], tf.int64))
            return tf.reduce_sum(data * factors, axis=-1)

        table = tiff + number(read(tiff + 4, 4))
        tags = tf.reshape(read(table + 2, _TAG_BYTES * _MOST_TAGS), [-1, _MOST_TAGS, _TAG_BYTES])
        counts = number(read(table, 2))
        matches = tf.equal(number(tags[..., :2]), _TAG) & (tf.range(_MOST_TAGS, dtype=tf.int64) < counts[:, tf.newaxis])
        tag = tf.gather(tags, tf.argmax(matches, axis=1), batch_dims=1)
        value = tf.where(tf.equal(number(tag[:, 2:4]), _LONG), number(tag[:, 8:]), number(tag[:, 8:10]))
        is_valid = has_exif & tf.reduce_any(matches, axis=1) & (value >= 1) & (value <= 8)
        return tf.where(is_valid, value, 1)

    begins = tf.equal(read(tf.ones_like(sizes), 1)[:, 0], 0xD8)
    (at,) = tf.while_loop(
        lambda at: tf.reduce_any(begins & is_before_exif(at)), skip_segment, (2 * tf.ones_like(sizes),)
    )
    has_exif = begins & is_exif(at)
    return tf.cond(tf.reduce_any(has_exif), read_tags, lambda: tf.ones_like(sizes))


def _turn(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    def where(numbers: tuple[int, ...], change: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_any(tf.equal(number, numbers)), lambda: change(pixels), lambda: pixels)

    image = where((5, 6, 7, 8), lambda pixels: tf.transpose(pixels, [1, 0, 2]), image)
    image = where((2, 3, 6, 7), lambda pixels: tf.reverse(pixels, [1]), image)
    return where((3, 4, 7, 8), lambda pixels: tf.reverse(pixels, [0]), image)
