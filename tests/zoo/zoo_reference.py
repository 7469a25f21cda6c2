"""Reference values of features, labels and splits, computed with NumPy alone, in float64.

Nothing here may import the project's code: a test checks it.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import farmhash
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = Sequence[Any]
"""The values of a column; None where it is missing. In a column of lists, a list for each row."""
Training = npt.NDArray[np.bool_]
"""Which rows belong to the training split; shape [rows]."""


def present_numbers(values: Values) -> Floats:
    """Return the values as float64, NaN where one is missing or not finite."""
    numbers = np.array([math.nan if value is None else float(value) for value in values])
    return np.where(np.isfinite(numbers), numbers, math.nan)


def z_score(values: Values, training: Training) -> Floats:
    """Return (x - mean) / standard deviation over the training rows; 0 where missing. A deviation of 0 counts as 1."""
    numbers = present_numbers(values)
    known = numbers[training & ~np.isnan(numbers)]
    return np.nan_to_num((numbers - known.mean()) / (known.std() or 1.0))


def log(values: Values, training: Training) -> Floats:
    """Return the z-score of the signed logarithm of 1 + |x|."""
    numbers = present_numbers(values)
    return z_score((np.sign(numbers) * np.log1p(np.abs(numbers))).tolist(), training)


def clip(values: Values, training: Training, low: float, high: float) -> Floats:
    """Return the z-score of the values within two bounds."""
    return z_score(np.clip(present_numbers(values), low, high).tolist(), training)


def min_max(values: Values, training: Training) -> Floats:
    """Return (x - least) / (greatest - least) over the training rows, within [0, 1]; 0 where a value is missing."""
    numbers = present_numbers(values)
    known = numbers[training & ~np.isnan(numbers)]
    if known.min() == known.max():
        return np.zeros(len(numbers))
    # Divide before subtracting, so that the range of huge values does not overflow.
    share = (numbers / 2 - known.min() / 2) / (known.max() / 2 - known.min() / 2)
    return np.nan_to_num(np.clip(share, 0, 1))


def pass_through(values: Values) -> Floats:
    """Return the values; 0 where one is missing."""
    return np.nan_to_num(present_numbers(values))


def missing(values: Values) -> Floats:
    """Return 1 where a value is missing, else 0."""
    return np.array([float(value is None) for value in values])


def cyclical(values: Values, period: float) -> Floats:
    """Return sin and cos of 2π · x / period; shape [rows, 2]; 0 where a value is missing."""
    angle = 2 * math.pi * np.mod(present_numbers(values), period) / period
    return np.nan_to_num(np.stack([np.sin(angle), np.cos(angle)], axis=1))


def buckets(values: Values, boundaries: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return 1 + the number of boundaries at or below each value; 0 where it is missing."""
    numbers = present_numbers(values)
    bins = np.searchsorted(np.array(boundaries, np.float64), numbers, side="right") + 1
    return np.where(np.isnan(numbers), 0, bins).astype(np.int64)


def quantiles(values: Values, training: Training, bucket_count: int) -> list[float]:
    """Return the inner boundaries of equally full buckets of the training rows; equal ones where a value repeats."""
    known = present_numbers(values)[training]
    shares = np.arange(1, bucket_count) / bucket_count
    boundaries: list[float] = np.quantile(known[~np.isnan(known)], shares, method="higher").tolist()
    return boundaries


def piecewise_linear(values: Values, edges: Sequence[float]) -> Floats:
    """Return the position in each bin, within [0, 1]; shape [rows, bins]; 0 where a value is missing."""
    numbers, ends = present_numbers(values)[:, None], np.array(edges, np.float64)
    return np.nan_to_num(np.clip((numbers - ends[:-1]) / (ends[1:] - ends[:-1]), 0, 1))


def vocabulary(texts: Iterable[bytes], size: int, min_frequency: int = 1) -> list[bytes]:
    """Return the most frequent texts, by falling frequency; equal frequencies are sorted by bytes."""
    counted = Counter(texts)
    ordered = sorted(counted, key=lambda text: (-counted[text], text))
    return [text for text in ordered if counted[text] >= min_frequency][:size]


def ids(texts: Sequence[bytes | None], words: Sequence[bytes], oov_buckets: int = 1) -> npt.NDArray[np.int64]:
    """Return 1 + the rank in the vocabulary, or 1 + a bucket after it for unknown texts; 0 where missing."""
    ranks = {word: rank for rank, word in enumerate(words)}

    def id_of(text: bytes | None) -> int:
        if text is None:
            return 0
        return 1 + ranks.get(text, len(words) + hash_bucket(text, oov_buckets))

    return np.array([id_of(text) for text in texts], np.int64)


def hash_bucket(text: bytes, bucket_count: int) -> int:
    """Return the bucket of a text: its 64-bit FarmHash fingerprint modulo the number of buckets."""
    # The package accepts only text, and hashes its UTF-8 bytes.
    return int(farmhash.fingerprint64(text.decode()) % bucket_count)


def hash_texts(texts: Sequence[bytes | None], bucket_count: int) -> npt.NDArray[np.int64]:
    """Return 1 + the bucket of a text; 0 where a text is missing."""
    return np.array([0 if text is None else 1 + hash_bucket(text, bucket_count) for text in texts], np.int64)


def pad(rows: Sequence[Sequence[int]], width: int, keep_last: bool = False) -> npt.NDArray[np.int64]:
    """Return lists of ids as a matrix [rows, width], padded with 0; longer lists keep their first or last ids."""
    matrix = np.zeros((len(rows), width), np.int64)
    for row, values in enumerate(rows):
        ids = list(values)[-width:] if keep_last else list(values)[:width]
        matrix[row, : len(ids)] = ids
    return matrix


def words(text: str | None, ngrams: int) -> list[bytes]:
    """Return the words of a text in lower case, then its pairs, then its triples of words, joined by a space."""
    separated = "".join(
        letter if unicodedata.category(letter)[0] in "LNM" else " " for letter in (text or "").lower()
    ).split()
    grams = [
        " ".join(separated[start : start + count])
        for count in range(1, ngrams + 1)
        for start in range(len(separated) - count + 1)
    ]
    return [gram.encode() for gram in grams]


def instant(text: str | None, read: Callable[[str], datetime]) -> datetime | None:
    """Return the moment that a text names, in UTC; a text without an offset is in UTC."""
    if text is None:
        return None
    moment = read(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def from_epoch(value: int | None, unit: timedelta) -> datetime | None:
    """Return the moment at a number of units after 1970-01-01 UTC; negative numbers are before it."""
    return None if value is None else datetime(1970, 1, 1, tzinfo=timezone.utc) + value * unit


DATE_PARTS: dict[str, Callable[[datetime], int]] = {
    "month": lambda moment: moment.month - 1,
    "day": lambda moment: moment.day - 1,
    "weekday": lambda moment: moment.weekday(),
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "day_of_year": lambda moment: moment.timetuple().tm_yday - 1,
}
"""Part → its number from 0 on."""


def date_part(moments: Sequence[datetime | None], part: str) -> npt.NDArray[np.int64]:
    """Return 1 + the number of a part of a moment; 0 where the moment is missing."""
    return np.array([0 if moment is None else 1 + DATE_PARTS[part](moment) for moment in moments], np.int64)
