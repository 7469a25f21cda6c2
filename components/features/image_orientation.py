"""Turn images upright in the graph, according to the tag Orientation in a JPEG's EXIF data.

Cameras store the pixels as the sensor reads them, and record how the camera was held in this tag. TensorFlow's decoder
ignores it.

Source: CIPA DC-008-2019 (EXIF 2.32), 4.5.4 and 4.6.4; TIFF 6.0 defines the eight values of the tag.
"""

from __future__ import annotations

import tensorflow as tf

_HEAD = 1 << 17
"""Bytes at the start of a file that may contain EXIF data. It follows the first marker and has at most 64 KiB."""
_EXIF, _SCAN, _END = 0xE1, 0xDA, 0xD9
"""Markers in a JPEG: segment of EXIF data, start of the pixels, end of the image."""
_TAG = 0x0112
_LONG = 4
"""Type of a tag whose value has 32 bits. Values of other types are read as 16 bits."""
_MOST_TAGS = 512


def upright(image: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
    """Rotate and mirror an image according to the orientation in its file.

    Args:
      image: Decoded pixels; shape [height, width, channels].
      data: Encoded file; scalar string.

    Returns:
      The upright pixels. With an orientation from 5 to 8, height and width are exchanged.
    """
    number = orientation(data)
    return tf.cond(tf.equal(number, 1), lambda: image, lambda: _turn(image, number))


def orientation(data: tf.Tensor) -> tf.Tensor:
    """Return the orientation of an image file.

    Args:
      data: Encoded file; scalar string.

    Returns:
      Scalar int64 from 1 to 8; 1 (upright) if the file lacks the tag.
    """
    head = tf.io.decode_raw(tf.strings.substr(data, 0, _HEAD), tf.uint8)
    size = tf.size(head, tf.int64)
    # Bytes behind the end are 0.
    padded = tf.concat([tf.cast(head, tf.int64), [0]], axis=0)

    def byte(index: tf.Tensor) -> tf.Tensor:
        return tf.gather(padded, tf.minimum(index, size))

    def is_before_exif(at: tf.Tensor) -> tf.Tensor:
        start, marker = byte(at), byte(at + 1)
        is_segment = (at + 4 < size) & tf.equal(start, 0xFF) & (marker != _SCAN) & (marker != _END)
        return is_segment & ~_is_exif(data, at, marker)

    def skip_segment(at: tf.Tensor) -> tuple[tf.Tensor]:
        high, low = byte(at + 2), byte(at + 3)
        return (at + 2 + 256 * high + low,)

    first = tf.constant(2, tf.int64)
    (at,) = tf.while_loop(is_before_exif, skip_segment, (first,))
    is_exif = tf.equal(byte(first - 1), 0xD8) & _is_exif(data, at, byte(at + 1))
    tiff = at + 10
    is_little = tf.equal(byte(tiff), ord("I"))
    weights = {width: _weigh_bytes(width, is_little) for width in (2, 4)}

    def number(index: tf.Tensor, width: int) -> tf.Tensor:
        """Return the unsigned integers of `width` bytes at the positions `index`."""
        return tf.reduce_sum(byte(index[..., tf.newaxis] + tf.range(width, dtype=tf.int64)) * weights[width], axis=-1)

    table = tiff + number(tiff + 4, 4)
    tags = table + 2 + 12 * tf.range(tf.minimum(number(table, 2), _MOST_TAGS))
    tags = tf.boolean_mask(tags, tf.equal(number(tags, 2), _TAG))
    values = tf.where(tf.equal(number(tags + 2, 2), _LONG), number(tags + 8, 4), number(tags + 8, 2))
    value = tf.reduce_max(tf.concat([values[:1], [1]], axis=0))
    return tf.where(is_exif & (value <= 8), value, 1)


def _weigh_bytes(width: int, is_little: tf.Tensor) -> tf.Tensor:
    """Return the factors of the bytes of an unsigned integer; int64 of shape [width]."""
    factors = tf.constant([256**position for position in range(width)], tf.int64)
    return tf.where(is_little, factors, factors[::-1])


def _is_exif(data: tf.Tensor, at: tf.Tensor, marker: tf.Tensor) -> tf.Tensor:
    """Return whether the segment at an offset contains EXIF data; scalar bool."""
    start = tf.minimum(at + 4, tf.cast(tf.strings.length(data), tf.int64))
    return tf.equal(marker, _EXIF) & tf.equal(tf.strings.substr(data, start, 6), b"Exif\0\0")


def _turn(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    def where(numbers: tuple[int, ...], change: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_any(tf.equal(number, numbers)), lambda: change(pixels), lambda: pixels)

    image = where((5, 6, 7, 8), lambda pixels: tf.transpose(pixels, [1, 0, 2]), image)
    image = where((2, 3, 6, 7), lambda pixels: tf.reverse(pixels, [1]), image)
    return where((3, 4, 7, 8), lambda pixels: tf.reverse(pixels, [0]), image)
