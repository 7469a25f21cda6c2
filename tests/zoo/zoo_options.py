"""Tables of operations with options: weights of words, holidays, means of labels, and places; see `zoo_tables`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zoo_reference as reference
from sklearn.feature_extraction.text import TfidfVectorizer
from zoo_reference import Training
from zoo_tables import Columns, Expected, Table, table, with_rows

_VALUES = 8


def _tf_idf(texts: Sequence[str | None], training: Training, size: int) -> npt.NDArray[np.float64]:
    """Return the IDs of the words of texts, then their weights by scikit-learn; shape [rows, 2 * _VALUES]."""
    words = [[word.decode() for word in reference.words(text, 2)] for text in texts]
    known = [row for row, is_training in zip(words, training, strict=True) if is_training and row]
    documents = [word.encode() for row in known for word in dict.fromkeys(row)]
    names = [word.decode() for word in reference.vocabulary(documents, size)]
    vectorizer = TfidfVectorizer(analyzer=lambda row: row, vocabulary=names).fit(known)
    weights = vectorizer.transform(words).toarray()
    ids = [[names.index(word) + 1 for word in dict.fromkeys(row) if word in names] for row in words]
    weights_of_rows = np.zeros((len(texts), _VALUES))
    for row, values in enumerate(ids):
        weights_of_rows[row, : len(values)] = weights[row, np.array(values, int) - 1]
    return np.concatenate([reference.pad(ids, _VALUES), weights_of_rows], axis=1)


@table
def weighted_texts() -> Table:
    """Texts with weights: repeated, missing, empty and unknown words, and texts that are all equal."""
    notes = ["red shoes, red hat", "Red HAT", None, "", "... !", "blue hat and shoes", "line\nbreak", "red", "size 42"]
    note = [notes[row % len(notes)] for row in range(48)]
    # Rows of the eval split contain words that the training split does not.
    note[2], note[5], note[8] = "zebra", "red zebra", "a hat a hat a hat"
    columns = {"note": note, "same": ["all are equal"] * 48, "y": [row % 2 for row in range(48)]}

    def compute(columns: Columns, training: Training) -> Expected:
        return {
            "note_text": _tf_idf(columns["note"], training, 9),
            "same_text": _tf_idf(columns["same"], training, 20),
        }

    options = {"weighting": "tf_idf", "max_values": _VALUES}
    return Table(
        with_rows(columns),
        {
            "columns": {
                "note": {"text": {**options, "vocabulary": 9}},
                "same": {"text": {**options, "vocabulary": 20}},
            }
        },
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        stored="parquet",
    )


def _easter(year: int) -> date:
    """Return Easter Sunday by the algorithm of Gauss, in the form for the Gregorian calendar."""
    century = year // 100
    moon = (15 + century - (8 * century + 13) // 25 - century // 4) % 30
    full = (19 * (year % 19) + moon) % 30
    full -= full == 29 or (full == 28 and year % 19 > 10)
    sunday = (4 + century - century // 4) % 7
    after = (2 * (year % 4) + 4 * (year % 7) + 6 * full + sunday) % 7
    return date(year, 3, 22) + timedelta(days=full + after)


def _is_german_holiday(day: date) -> bool:
    """Check whether a day after 2017 is a holiday in all of Germany."""
    is_fixed = (day.month, day.day) in {(1, 1), (5, 1), (10, 3), (12, 25), (12, 26)}
    # Good Friday, Easter Monday, Ascension and Whit Monday.
    return is_fixed or (day - _easter(day.year)).days in (-2, 1, 39, 50)


@table
def holidays() -> Table:
    """Dates around the holidays of Germany, missing dates, and dates whose holidays are not known."""
    easter = [_easter(year) for year in range(2018, 2050)]
    days = [day + timedelta(days=ahead) for day in easter for ahead in (-2, 1, 0, 39, 40, 50)]
    days += [date(year, month, day) for year in (2019, 2050) for month, day in ((1, 1), (1, 2), (10, 3), (12, 25))]
    when = [*map(str, days), None, "1989-12-25", "2051-12-25", "no date"]

    def compute(columns: Columns, _training: Training) -> Expected:
        known = [*(1 + _is_german_holiday(day) for day in days), 0, 0, 0, 0]
        weekdays = [*(1 + day.weekday() for day in days), 0, 1, 1, 0]
        return {"when_holiday": np.array(known), "when_weekday": np.array(weekdays)}

    return Table(
        with_rows({"when": when, "y": [row % 2 for row in range(len(when))]}),
        {"columns": {"when": {"date_parts": {"parts": ["weekday", "holiday"], "holidays": "DE"}}}},
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        stored="parquet",
    )


@table
def pretrained_vectors() -> Table:
    """Values and words that a file of vectors contains or lacks, and missing ones."""
    file = Path(__file__).parents[1] / "support" / "data" / "vectors.txt"
    lines = [line.split(" ") for line in file.read_text(encoding="utf-8").splitlines()]
    # Of equal values, the first counts.
    vectors = {value: [float(number) for number in numbers] for value, *numbers in reversed(lines)}
    none = [0.0] * 3
    codes = [-3, 7, 8, None] * 12
    notes = ["Red shoes, red!", None, "blue", "shoes", "", "a C é"] * 8

    def compute(columns: Columns, training: Training) -> Expected:
        known = [
            [vectors[word.decode()] for word in reference.words(text, 1) if word.decode() in vectors] for text in notes
        ]
        return {
            "code_vectors": np.array([vectors.get(str(code), none) for code in columns["code"]]),
            "note_vectors": np.array([np.mean(words, axis=0) if words else none for words in known]),
        }

    return Table(
        with_rows({"code": codes, "note": notes, "y": [row % 2 for row in range(48)]}),
        {
            "columns": {
                "code": {"vectors": {"path": str(file), "width": 3}},
                "note": {"vectors": {"path": str(file), "width": 3, "words": True}},
            }
        },
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        stored="parquet",
    )


def _target_mean(values: Sequence[Any], labels: Sequence[int], training: Training) -> npt.NDArray[np.float64]:
    """Return the smoothed means of the label in 2 folds of the training rows, minus the mean of all rows, in units of
    the standard deviation. A training row gets the mean of the other fold, any other row the mean of both.
    """
    rows = np.flatnonzero(training)
    # The rows of a file are drawn by their place in a row group and its number.
    folds = np.random.default_rng([0, 0]).integers(0, 1 << 31, len(rows)) % 2
    encoded = np.zeros(len(values))
    for row in range(len(values)):
        others = rows[folds != folds[np.flatnonzero(rows == row)[0]]] if training[row] else rows
        known = np.array([labels[other] for other in others], float)
        same = np.array([labels[other] for other in others if values[other] == values[row]], float)
        if sum(values[other] == values[row] for other in rows) >= 2:
            mean = (same.sum() + 3 * known.mean()) / (len(same) + 3)
            encoded[row] = (mean - known.mean()) / known.std()
    return encoded


@table
def encoded_values() -> Table:
    """Keys of texts, integers and floats that are frequent, rare, unknown or missing; places; and hours of a clock."""
    random = np.random.default_rng(11)
    shop = [None if number > 7 else f"shop, {number}" for number in random.zipf(1.6, 120).tolist()]
    code = [int(number) for number in random.integers(-3, 40, 120)]
    price = [None if number == 4 else number / 10 for number in random.integers(0, 9, 120).tolist()]
    labels = [int(random.random() < (0.7 if name == "shop, 1" else 0.3)) for name in shop]
    latitude = [None if row == 5 else round(float(number), 4) for row, number in enumerate(random.normal(48, 9, 120))]
    longitude = [round(float(number), 4) for number in random.normal(11, 30, 120)]
    when = [f"2024-03-01 {hour:02}:30" for hour in random.integers(0, 24, 120).tolist()]

    def compute(columns: Columns, training: Training) -> Expected:
        features: dict[str, npt.NDArray[np.float64]] = {}
        for name in ("shop", "code", "price"):
            values = columns[name]
            features[f"{name}_target_mean"] = _target_mean(values, columns["y"], training)
            known = [value for value, is_training in zip(values, training, strict=True) if is_training]
            counts = [0 if value is None else known.count(value) for value in values]
            features[f"{name}_count"] = np.array(counts) / len(known)
        north, east = (np.radians(reference.present_numbers(columns[name])) for name in ("latitude", "longitude"))
        # The spherical law of cosines, from the places to Munich.
        to_north, to_east = np.radians(48.137), np.radians(11.575)
        cosine = np.sin(north) * np.sin(to_north) + np.cos(north) * np.cos(to_north) * np.cos(east - to_east)
        distances = [None if np.isnan(angle) else 6371.0088 * angle for angle in np.arccos(cosine)]
        angle = 2 * np.pi * np.array([int(text[11:13]) for text in columns["when"]]) / 24
        return {
            **features,
            "latitude_geo_distance": reference.log(distances, training),
            "when_hour_cyclical": np.stack([np.sin(angle), np.cos(angle)], axis=1),
        }

    operations = [{"target_mean": {"smoothing": 3, "folds": 2, "min_frequency": 2}}, {"count": {"scale": "share"}}]
    distance = {"geo_distance": {"longitude": "longitude", "to": [48.137, 11.575]}}
    return Table(
        with_rows(
            {
                "shop": shop,
                "code": code,
                "price": price,
                "y": labels,
                "latitude": latitude,
                "longitude": longitude,
                "when": when,
            }
        ),
        {
            "columns": {
                **dict.fromkeys(("shop", "code", "price"), operations),
                "latitude": distance,
                "when": {"date_parts": {"parts": ["hour"], "encode": "cyclical"}},
            }
        },
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        stored="parquet",
        tolerance=1e-5,
    )
