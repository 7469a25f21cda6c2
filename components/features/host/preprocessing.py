"""Compute a model's inputs from raw columns with NumPy, for hosts without TensorFlow.

A pushed version contains this file together with its data, `preprocessing.json`. It imports only NumPy.

    import preprocessing

    features = preprocessing.Preprocessing("edge/preprocessing.json")
    inputs = features({"fare": [12.5, None], "payment_type": ["Cash", "Credit Card"]})
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
Columns: TypeAlias = "Mapping[str, Sequence[Any]]"
"""Raw column → one value per row: int, float, str, bytes or pixels; None if it is missing.

The pixels of an image are numbers from 0 to 1, shape [height, width, channels], where the operation's options give the
size. The host decodes the image, turns it upright according to the EXIF data, and resizes it. The model was trained on
bilinear resizing with antialiasing.
"""


class Preprocessing:
    """The operations of a model, with their constants.

    Args:
      path: Path of preprocessing.json, or its content.
    """

    def __init__(self, path: str | Path | Mapping[str, Any]) -> None:
        content = path if isinstance(path, Mapping) else json.loads(Path(path).read_text(encoding="utf-8"))
        self.inputs: dict[str, str] = content["inputs"]
        features = content["features"]
        self._features = [_Feature(feature) for feature in features]
        self.pixels = {feature["name"]: feature["columns"][0] for feature in features if feature["op"] == "image"}

    def __call__(self, columns: Columns) -> dict[str, Array]:
        """Compute the model's inputs by name; float32 or int64, shape [rows] or [rows, width].

        Args:
          columns: All columns of `inputs`, with the same length.

        Raises:
          KeyError: If a column is absent.
        """
        parsed = {name: _Column(columns[name], dtype) for name, dtype in self.inputs.items()}
        return {feature.name: feature(parsed) for feature in self._features}


class _Column:
    """A raw column: its values, with 0 or "" for missing values, and a mask of the present values."""

    def __init__(self, values: Sequence[Any], dtype: str) -> None:
        self.present = np.array([value is not None for value in values], bool)
        if dtype == "pixels":
            self.images = values
            return
        if dtype == "bytes":
            texts = ["" if value is None else value for value in values]
            self.texts = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
            return
        numbers = np.array([0 if value is None else value for value in values], {"int": "i8", "float": "f4"}[dtype])
        self.present &= np.isfinite(numbers)
        self.values: Array = np.where(self.present, numbers, 0).astype(numbers.dtype)
        self.numbers = self.values.astype("f8")
        if dtype == "int":
            self.texts = [str(number).encode() for number in self.values.tolist()]


class _Feature:
    def __init__(self, content: Mapping[str, Any]) -> None:
        self.name = content["name"]
        self._columns, self._op, self._options = content["columns"], content["op"], content["options"]
        self._analysis = np.array(content.get("analysis", ()), "f8")
        vocabulary = content.get("vocabulary", ())
        self._ids = {text.encode(errors="surrogateescape"): number for number, text in enumerate(vocabulary)}

    def __call__(self, columns: Mapping[str, _Column]) -> Array:
        column = columns[self._columns[0]]
        if self._op == "cross":
            return self._cross([columns[name] for name in self._columns])
        operation: Callable[[_Column], Array] = getattr(self, f"_{self._op}")
        return operation(column)

    def _z_score(self, column: _Column) -> Array:
        return self._scale(column.numbers, column.present)

    def _log(self, column: _Column) -> Array:
        numbers = column.numbers
        return self._scale(np.sign(numbers) * np.log1p(np.abs(numbers)), column.present)

    def _clip(self, column: _Column) -> Array:
        low, high = self._options["low"], self._options["high"]
        bounds = np.array([-math.inf if low is None else low, math.inf if high is None else high])
        return self._scale(np.clip(column.numbers, *bounds), column.present)

    def _scale(self, numbers: Array, present: Array) -> Array:
        mean, deviation = self._analysis[:2]
        return np.where(present, (numbers - mean) / deviation, 0).astype("f4")

    def _min_max(self, column: _Column) -> Array:
        least, greatest = self._analysis[2:]
        if least == greatest:
            return np.zeros(len(column.numbers), "f4")
        shares = np.clip((column.numbers - least) / (greatest - least), 0, 1)
        return np.where(column.present, shares, 0).astype("f4")

    def _pass_through(self, column: _Column) -> Array:
        return column.values.astype("f4")

    def _missing(self, column: _Column) -> Array:
        return np.where(column.present, np.float32(0), np.float32(1))

    def _image(self, column: _Column) -> Array:
        width = math.prod(self._options[name] for name in ("height", "width", "channels"))
        blank = np.zeros(width, "f4")
        return np.stack([blank if image is None else np.asarray(image, "f4").reshape(width) for image in column.images])

    def _cyclical(self, column: _Column) -> Array:
        period = self._options["period"]
        angle = 2 * math.pi * (column.values.astype("f8") % period) / period
        points = np.stack([np.sin(angle), np.cos(angle)], axis=1).astype("f4")
        return np.where(column.present[:, None], points, np.float32(0))

    def _piecewise_linear(self, column: _Column) -> Array:
        low, width = self._analysis[:-1], np.diff(self._analysis)
        above = column.numbers[:, None] - low
        position = np.divide(above, width, out=np.zeros_like(above), where=width != 0)
        return np.where(column.present[:, None], np.clip(position, 0, 1), 0).astype("f4")

    def _bucketize(self, column: _Column) -> Array:
        return self._with_missing(np.searchsorted(self._analysis, column.numbers, side="right"), column.present)

    def _vocab(self, column: _Column) -> Array:
        known, buckets = len(self._ids), self._options["oov_buckets"]
        ids = (self._ids.get(text, -1) for text in column.texts)
        unknown = (known + (fingerprint(text) % buckets if buckets > 1 else 0) for text in column.texts)
        return self._with_missing(
            [new if id_ < 0 else id_ for id_, new in zip(ids, unknown, strict=True)], column.present
        )

    def _hash(self, column: _Column) -> Array:
        return self._hash_texts(column.texts, column.present)

    def _cross(self, columns: Sequence[_Column]) -> Array:
        rows = zip(*(column.texts for column in columns), strict=True)
        # Put the length in front of every text, so that the joined text is unambiguous.
        texts = [b"".join(b"%d:%b" % (len(text), text) for text in row) for row in rows]
        return self._hash_texts(texts, np.all([column.present for column in columns], axis=0))

    def _hash_texts(self, texts: Sequence[bytes], present: Array) -> Array:
        return self._with_missing([fingerprint(text) % self._options["buckets"] for text in texts], present)

    def _with_missing(self, ids: Sequence[int] | Array, present: Array) -> Array:
        """Return the IDs + 1, and 0 for a missing value."""
        return np.where(present, np.asarray(ids, "i8") + 1, 0)


_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_64 = (1 << 64) - 1


def fingerprint(text: bytes) -> int:
    """Compute the 64-bit fingerprint with which TensorFlow hashes texts: Fingerprint64 of FarmHash (Pike, 2014)."""
    length, end = len(text), len(text)
    if length > 64:
        return _fingerprint_long(text)
    mul = _K2 + length * 2
    if length == 0:
        return _K2
    if length < 4:
        y = text[0] + (text[length >> 1] << 8)
        return _shift_mix(y * _K2 ^ (length + (text[-1] << 2)) * _K0) * _K2 & _64
    if length < 8:
        return _mix(length + (_word(text, 0, 4) << 3), _word(text, end - 4, 4), mul)
    if length <= 16:
        a, b = _word(text, 0) + _K2, _word(text, end - 8)
        return _mix(_rotate(b, 37) * mul + a, (_rotate(a, 25) + b) * mul, mul)
    a, b = _word(text, 0) * (_K1 if length <= 32 else _K2), _word(text, 8)
    c, d = _word(text, end - 8) * mul, _word(text, end - 16) * _K2
    y, x = _rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c
    z = _mix(y, x, mul)
    if length <= 32:
        return z
    e, f = _word(text, 16) * mul, _word(text, 24)
    g, h = (y + _word(text, end - 32)) * mul, (z + _word(text, end - 24)) * mul
    return _mix(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul)


def _fingerprint_long(text: bytes) -> int:
    x, y = 81 * _K2 + _word(text, 0), 81 * _K1 + 113
    z = _shift_mix(y * _K2 + 113) * _K2
    v, w = (0, 0), (0, 0)
    last = len(text) - 64
    for start in range(0, len(text) - 1 - (len(text) - 1) % 64, 64):
        x, y, z, v, w = _block(text, start, (x, y, z, v, w), _K1, 1)
    mul = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + (len(text) - 1) % 64, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x, y, z, v, w = _block(text, last, (x, y, z, v, w), mul, 9)
    first = _mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z
    return _mix(first, _mix(v[1], w[1], mul) + x, mul)


def _block(text: bytes, at: int, state: tuple[Any, ...], mul: int, factor: int) -> tuple[Any, ...]:
    """Mix 64 bytes into the state of a long text."""
    x, y, z, v, w = state
    x = _rotate(x + y + v[0] + _word(text, at + 8), 37) * mul
    y = _rotate(y + v[1] + _word(text, at + 48), 42) * mul
    x = (x ^ w[1] * factor) & _64
    y = (y + v[0] * factor + _word(text, at + 40)) & _64
    z = _rotate(z + w[0], 33) * mul & _64
    v = _pair(text, at, v[1] * mul, x + w[0])
    w = _pair(text, at + 32, z + w[1], y + _word(text, at + 16))
    return z, y, x, v, w


def _pair(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    first, second, third, fourth = (_word(text, at + offset) for offset in (0, 8, 16, 24))
    a += first
    b = _rotate(b + a + fourth, 21)
    total = a + second + third
    return (total + fourth) & _64, (b + _rotate(total, 44) + a) & _64


def _mix(u: int, v: int, mul: int) -> int:
    a = _shift_mix((u ^ v) * mul)
    return _shift_mix(((v ^ a) & _64) * mul) * mul & _64


def _shift_mix(value: int) -> int:
    value &= _64
    return value ^ value >> 47


def _rotate(value: int, bits: int) -> int:
    value &= _64
    return value >> bits | value << 64 - bits & _64


def _word(text: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(text[at : at + size], "little")
