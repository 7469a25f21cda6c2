"""Small tables, one per peculiarity of real data, with the expected results.

Tables have a column `row`, which identifies a row, and a column `part`, which assigns it to a split. The
expected values come from `zoo_reference`. Nothing here may import the project's code: a test checks it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import zoo_reference as reference
from PIL import Image
from zoo_reference import Training

Columns = dict[str, list[Any]]
"""Name → the values of all rows; None where one is missing."""
Expected = Mapping[str, npt.NDArray[Any]]
"""Feature → its values; shape [rows] or [rows, width]."""
Stored = Literal["csv", "parquet"]


@dataclass(frozen=True)
class Table:
    """A table, its config, and the expected results.

    Attributes:
      columns: The stored columns.
      features: `features` of the config.
      expected: computes the features from the columns and the training rows.
      label: `data.label` of the config.
      labels: the labels of all rows.
      task: of the config.
      data: further fields of `data`.
      stored: the format of the file.
      tolerance: of float32 features, as a share of 1 + |value|.
      store: Function that writes the columns into a folder and returns the data's path. If None, one file is written.
    """

    columns: Columns
    features: dict[str, Any]
    expected: Callable[[Columns, Training], Expected]
    label: str
    labels: Callable[[Columns], npt.NDArray[Any]]
    task: str = "binary"
    data: dict[str, Any] = field(default_factory=dict)
    stored: Stored = "csv"
    tolerance: float = 1e-6
    store: Callable[[Columns, Path], Path] | None = None

    @property
    def training(self) -> Training:
        """The mask of the rows in the training split."""
        return np.array([part == "train" for part in self.columns["part"]])


TABLES: dict[str, Callable[[], Table]] = {}
"""Name → makes the table."""


def table(make: Callable[[], Table]) -> Callable[[], Table]:
    """Register a table by the name of its function."""
    TABLES[make.__name__] = make
    return make


def write(columns: Columns, stored: Stored, path: Path) -> Path:
    """Write the columns as a file, and return its path."""
    if stored == "parquet":
        pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)
        return path
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if value is None else value for value in row] for row in zip(*columns.values(), strict=True))
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def with_rows(columns: Columns) -> Columns:
    """Add `row`, and `part`, which assigns every third row to evaluation."""
    count = len(next(iter(columns.values())))
    return {"row": list(range(count)), "part": ["eval" if row % 3 == 2 else "train" for row in range(count)], **columns}


def _maybe(random: np.random.Generator, values: Sequence[Any], share: float = 0.15) -> list[Any]:
    """Leave a share of the values out."""
    return [None if random.random() < share else value for value in values]


def _column(name: str) -> Callable[[Columns], npt.NDArray[Any]]:
    return lambda columns: np.array(columns[name])


def _texts(values: Sequence[Any]) -> list[bytes | None]:
    return [None if value is None else str(value).encode() for value in values]


@table
def numbers_with_gaps() -> Table:
    """Floats and integers, negative and missing, with every operation that makes numbers of numbers."""
    random = np.random.default_rng(1)
    price = _maybe(random, [round(float(value), 3) for value in random.lognormal(2, 2, 90) - 3])
    count = _maybe(random, [int(value) for value in random.integers(-40, 900, 90)])
    angle = [float(value) for value in random.integers(-720, 720, 90)]
    target = [round(float(value), 2) for value in random.normal(10, 3, 90)]

    def compute(columns: Columns, training: Training) -> Expected:
        features: dict[str, npt.NDArray[Any]] = {}
        for name in ("price", "count"):
            values = columns[name]
            features |= {
                f"{name}_z_score": reference.z_score(values, training),
                f"{name}_log": reference.log(values, training),
                f"{name}_min_max": reference.min_max(values, training),
                f"{name}_clip": reference.clip(values, training, -1, 30),
                f"{name}_pass_through": reference.pass_through(values),
                f"{name}_missing": reference.missing(values),
            }
        return {**features, "angle_cyclical": reference.cyclical(columns["angle"], 360)}

    operations = ["z_score", "log", "min_max", {"clip": {"low": -1, "high": 30}}, "pass_through", "missing"]
    features = {"price": operations, "count": operations, "angle": {"cyclical": {"period": 360}}}
    return Table(
        with_rows({"price": price, "count": count, "angle": angle, "target": target}),
        {"columns": features},
        compute,
        "target",
        lambda columns: np.array(columns["target"], np.float32),
        "regression",
    )


@table
def two_hundred_columns() -> Table:
    """Many columns of one kind and few rows."""
    random = np.random.default_rng(2)
    names = [f"sensor_{number:03}" for number in range(200)]
    columns = {name: random.normal(number, 1 + number, 60).round(4).tolist() for number, name in enumerate(names)}
    return Table(
        with_rows({**columns, "y": [row % 2 for row in range(60)]}),
        {"columns": dict.fromkeys(names, "z_score")},
        lambda columns, training: {
            f"{name}_z_score": reference.z_score(np.float32(columns[name]).tolist(), training) for name in names
        },
        "y",
        _column("y"),
        stored="parquet",
        # Means of up to 200 in float32, of deviations from 1 on.
        tolerance=2e-5,
    )


@table
def rare_label() -> Table:
    """Three positives among 600 rows, and a value that only they have."""
    random = np.random.default_rng(3)
    y = [int(row in (10, 200, 401)) for row in range(600)]
    kind = ["fraud" if label else str(random.choice(["shop", "fuel"])) for label in y]
    return Table(
        with_rows({"kind": kind, "amount": random.lognormal(3, 1, 600).round(2).tolist(), "y": y}),
        {"columns": {"kind": "vocab", "amount": "log"}},
        lambda columns, training: {
            "kind_vocab": vocabulary_ids(columns["kind"], training, 10_000),
            "amount_log": reference.log(columns["amount"], training),
        },
        "y",
        _column("y"),
    )


def vocabulary_ids(values: Sequence[Any], training: Training, size: int, oov_buckets: int = 1) -> npt.NDArray[Any]:
    """Return the ids of values in the vocabulary of the training rows; arguments as for `reference.ids`."""
    texts = _texts(values)
    known = [text for text, is_training in zip(texts, training, strict=True) if is_training and text is not None]
    return reference.ids(texts, reference.vocabulary(known, size), oov_buckets)


@table
def odd_names() -> Table:
    """Headers with spaces, signs and capitals, in other scripts, and words of programming languages."""
    random = np.random.default_rng(4)
    headers = ["Fare ($)", "class", "Größe in cm", "a.b", "x-y"]
    columns = {header: random.normal(5, 2, 45).round(2).tolist() for header in headers}
    names = ["Fare", "class", "Grosse_in_cm", "a_b", "x_y"]
    return Table(
        with_rows({**columns, "is it late?": [row % 2 for row in range(45)]}),
        {"columns": dict.fromkeys(names, "z_score")},
        lambda columns, training: {
            f"{name}_z_score": reference.z_score(columns[header], training)
            for header, name in zip(headers, names, strict=True)
        },
        "is_it_late",
        _column("is it late?"),
        tolerance=4e-6,
    )


@table
def decimal_threshold() -> Table:
    """Return a label that compares a column with a decimal number; many rows equal the number exactly."""
    random = np.random.default_rng(5)
    price = [round(float(value), 1) for value in random.uniform(0.3, 1.2, 120)]
    return Table(
        with_rows({"price": price, "size": random.normal(0, 1, 120).round(3).tolist()}),
        {"columns": {"size": "z_score"}},
        lambda columns, training: {"size_z_score": reference.z_score(columns["size"], training)},
        "price >= 0.7",
        lambda columns: (np.array(columns["price"]) >= 0.7).astype(np.int64),
    )


@table
def large_integers() -> Table:
    """Time in milliseconds within an hour, and identifiers beyond 2^53."""
    random = np.random.default_rng(6)
    start = 1_732_700_000_000
    time = [start + int(value) for value in random.integers(0, 3_600_000, 90)]
    order = [2**60 + int(value) for value in random.integers(0, 8, 90)]
    return Table(
        with_rows({"time": time, "order": order, "y": [row % 2 for row in range(90)]}),
        {"columns": {"time": ["z_score", "min_max"], "order": "vocab"}},
        lambda columns, training: {
            "time_z_score": reference.z_score([value - start for value in columns["time"]], training),
            "time_min_max": reference.min_max([value - start for value in columns["time"]], training),
            "order_vocab": vocabulary_ids(columns["order"], training, 10_000),
        },
        "y",
        _column("y"),
    )


@table
def not_finite() -> Table:
    """NaN, infinities and the largest float32s among numbers."""
    random = np.random.default_rng(7)
    plain = random.normal(0, 1, 90)
    odd = np.where(np.arange(90) % 5 == 0, np.nan, plain)
    odd = np.where(np.arange(90) % 7 == 0, np.where(np.arange(90) % 2, np.inf, -np.inf), odd)
    wide = np.where(np.arange(90) % 4 == 0, np.where(np.arange(90) % 8, 3.3e38, -3.3e38), plain * 1e38)
    columns = with_rows(
        {
            "odd": [None if math.isnan(value) else value for value in np.float32(odd).tolist()],
            "wide": np.float32(wide).tolist(),
            "y": [row % 2 for row in range(90)],
        }
    )
    return Table(
        columns,
        {"columns": {"odd": ["z_score", "pass_through"], "wide": "min_max"}},
        lambda columns, training: {
            "odd_z_score": reference.z_score(columns["odd"], training),
            "odd_pass_through": reference.pass_through(columns["odd"]),
            "wide_min_max": reference.min_max(columns["wide"], training),
        },
        "y",
        _column("y"),
        stored="parquet",
    )


@table
def dates() -> Table:
    """ISO 8601 with and without time and offset, days before 1970 and before 1900, and the two other orders."""
    random = np.random.default_rng(8)
    moments = [datetime(1880, 1, 1) + timedelta(minutes=int(value)) for value in random.integers(0, 78_000_000, 90)]
    forms = ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S+02:00", "%Y-%m-%d %H:%M:%S-03:30"]
    when = _maybe(random, [moment.strftime(forms[row % len(forms)]) for row, moment in enumerate(moments)])
    german = [moment.strftime("%d.%m.%Y %H:%M") for moment in moments]
    american = [moment.strftime("%m/%d/%Y") for moment in moments]
    seconds = [int(value) for value in random.integers(-(10**9), 2 * 10**9, 90)]
    parts = list(reference.DATE_PARTS)

    def compute(columns: Columns, _training: Training) -> Expected:
        read = {
            "when": [
                reference.instant(text, lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")))
                for text in columns["when"]
            ],
            "german": [reference.instant(text, _reader("%d.%m.%Y %H:%M")) for text in columns["german"]],
            "american": [reference.instant(text, _reader("%m/%d/%Y")) for text in columns["american"]],
            "seconds": [reference.from_epoch(value, timedelta(seconds=1)) for value in columns["seconds"]],
        }
        return {f"{name}_{part}": reference.date_part(read[name], part) for name in read for part in parts}

    features = {
        "when": {"date_parts": {"parts": parts}},
        "german": {"date_parts": {"parts": parts, "order": "dmy"}},
        "american": {"date_parts": {"parts": parts, "order": "mdy"}},
        "seconds": {"date_parts": {"parts": parts, "unit": "seconds"}},
    }
    columns = {"when": when, "german": german, "american": american, "seconds": seconds}
    return Table(
        with_rows({**columns, "y": [row % 2 for row in range(90)]}), {"columns": features}, compute, "y", _column("y")
    )


def _reader(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form)


@table
def ties() -> Table:
    """Return a column with few distinct values, one of them in most rows: buckets and bins between them."""
    random = np.random.default_rng(9)
    rooms = [int(value) for value in random.choice([1, 2, 3, 7], 300, p=[0.7, 0.1, 0.1, 0.1])]
    return Table(
        with_rows({"rooms": rooms, "y": [row % 2 for row in range(300)]}),
        {"columns": {"rooms": [{"bucketize": {"buckets": 40}}, {"piecewise_linear": {"bins": 3}}]}},
        lambda columns, training: {
            "rooms_bucketize": reference.buckets(columns["rooms"], reference.quantiles(columns["rooms"], training, 40)),
            "rooms_piecewise_linear": reference.piecewise_linear(columns["rooms"], [1, 2, 3, 7]),
        },
        "y",
        _column("y"),
    )


@table
def many_classes() -> Table:
    """Sixty classes, with quotes, commas and other scripts in their names, some of them in one row."""
    random = np.random.default_rng(10)
    names = [f"class {number}" for number in range(56)] + ['say "hi"', "a, b", "Straße", "東京"]
    label = [*names, *(str(name) for name in random.choice(names, 240))]
    columns = with_rows({"x": random.normal(0, 1, 300).round(3).tolist(), "label": label})
    columns["part"][: len(names)] = ["train"] * len(names)

    def labels(columns: Columns) -> npt.NDArray[np.int64]:
        training = [name for name, part in zip(columns["label"], columns["part"], strict=True) if part == "train"]
        classes = reference.vocabulary([name.encode() for name in training], len(names))
        return np.array([classes.index(name.encode()) for name in columns["label"]])

    return Table(
        columns,
        {"columns": {"x": "z_score"}},
        lambda columns, training: {"x_z_score": reference.z_score(columns["x"], training)},
        "label",
        labels,
        "multiclass",
    )


@table
def categories() -> Table:
    """Texts and whole numbers as categories: unknown values, missing ones, hashes and a cross."""
    random = np.random.default_rng(11)
    city = _maybe(random, [f"city {value}" for value in random.zipf(1.6, 240) if value < 40][:150])
    zone = _maybe(random, [int(value) for value in random.integers(0, 6, len(city))])

    def compute(columns: Columns, training: Training) -> Expected:
        cities, zones = _texts(columns["city"]), _texts(columns["zone"])
        # The length in front of a text makes the joined text unambiguous.
        pairs = [
            None if city is None or zone is None else b"%d:%b%d:%b" % (len(city), city, len(zone), zone)
            for city, zone in zip(cities, zones, strict=True)
        ]
        return {
            "city_vocab": vocabulary_ids(columns["city"], training, 5, oov_buckets=3),
            "city_hash": reference.hashed(cities, 50),
            "zone_vocab": vocabulary_ids(columns["zone"], training, 10_000),
            "place_cross": reference.hashed(pairs, 100),
        }

    features = {"city": [{"vocab": {"size": 5, "oov_buckets": 3}}, {"hash": {"buckets": 50}}], "zone": "vocab"}
    return Table(
        with_rows({"city": city, "zone": zone, "y": [row % 2 for row in range(len(city))]}),
        {"columns": features, "crosses": {"place": {"columns": ["city", "zone"], "buckets": 100}}},
        compute,
        "y",
        _column("y"),
    )


@table
def lists() -> Table:
    """List columns, and texts with several values between separators."""
    random = np.random.default_rng(12)
    words = ["red", "green", "blue", "grey", "pink"]
    tags = [[str(word) for word in random.choice(words, random.integers(0, 5))] or None for _ in range(90)]
    colours = ["|".join(words[: number % 4]) or None for number in range(90)]

    def compute(columns: Columns, training: Training) -> Expected:
        tags = [[text.encode() for text in row or ()] for row in columns["tags"]]
        colours = [[text.encode() for text in (row or "").split("|") if text] for row in columns["colours"]]
        features = {}
        for name, rows in {"tags": tags, "colours": colours}.items():
            known = [text for row, is_training in zip(rows, training, strict=True) if is_training for text in row]
            vocabulary = reference.vocabulary(known, 3)
            ids = [reference.ids(row, vocabulary, 2).tolist() for row in rows]
            hot = np.zeros((len(rows), 5))
            for row, values in enumerate(ids):
                hot[row, [value - 1 for value in values]] = 1
            features |= {f"{name}_split": reference.padded(ids, 3), f"{name}_multi_hot": hot}
        return features

    options = {"size": 3, "oov_buckets": 2}
    operations = [{"multi_hot": options}, {"split": {**options, "max_values": 3}}]
    return Table(
        with_rows({"tags": tags, "colours": colours, "y": [row % 2 for row in range(90)]}),
        {"columns": {"tags": operations, "colours": operations}},
        compute,
        "y",
        _column("y"),
        stored="parquet",
    )


@table
def texts() -> Table:
    """Texts of several languages, with accents and line breaks, and one of 20,000 words."""
    notes = ["Red shoes, size 42", "Größe: ÉTÉ!", "一二 три", None, "", "line\nbreak", "a-b_c", "... !", "x " * 20_000]
    note = [notes[row % len(notes)] for row in range(45)]

    def compute(columns: Columns, _training: Training) -> Expected:
        ids = [[1 + reference.hash_bucket(word, 1000) for word in reference.words(text, 2)] for text in columns["note"]]
        return {"note_text": reference.padded(ids, 6)}

    return Table(
        with_rows({"note": note, "y": [row % 2 for row in range(45)]}),
        {"columns": {"note": {"text": {"buckets": 1000, "ngrams": 2, "max_values": 6}}}},
        compute,
        "y",
        _column("y"),
    )


@table
def histories() -> Table:
    """Return what a user has seen before, with the times, and the item that the row is about."""
    random = np.random.default_rng(13)
    past = [[int(value) for value in random.integers(0, 12, random.integers(0, 7))] or None for _ in range(120)]
    item = [int(value) for value in random.integers(0, 12, 120)]
    now = [1_700_000_000 + int(value) for value in random.integers(0, 10**7, 120)]
    times = [
        None if row is None else sorted(until - int(gap) for gap in random.integers(0, 10**6, len(row)))
        for row, until in zip(past, now, strict=True)
    ]

    def compute(columns: Columns, training: Training) -> Expected:
        shown = _texts(columns["item"])
        events = [[str(value).encode() for value in (row or ())[-4:]] for row in columns["past"]]
        known = [text for text, is_training in zip(shown, training, strict=True) if is_training and text is not None]
        known += [text for row, is_training in zip(events, training, strict=True) if is_training for text in row]
        vocabulary = reference.vocabulary(known, 6)
        gaps = [
            [1 + math.floor(math.log2(1 + until - time)) for time in (row or ())]
            for row, until in zip(columns["times"], columns["now"], strict=True)
        ]
        return {
            "item_vocab": reference.ids(shown, vocabulary),
            "past_sequence": reference.padded([reference.ids(row, vocabulary).tolist() for row in events], 4),
            "times_time_gaps": reference.padded(gaps, 4, keep_last=True),
        }

    features = {
        "item": {"vocab": {"size": 6}},
        "past": {"sequence": {"of": "item", "max_values": 4}},
        "times": {"time_gaps": {"until": "now", "max_values": 4, "along": "past"}},
    }
    columns = {"past": past, "times": times, "item": item, "now": now, "y": [row % 2 for row in range(120)]}
    return Table(with_rows(columns), {"columns": features}, compute, "y", _column("y"), stored="parquet")


@table
def pictures() -> Table:
    """Return encoded images, some with an EXIF orientation, and a missing image."""
    random = np.random.default_rng(14)
    encoded = []
    for row in range(12):
        image = Image.fromarray(random.integers(0, 255, (5, 4), np.uint8), "L")
        exif = Image.Exif()
        exif[0x0112] = 1 + row % 8
        file = io.BytesIO()
        image.save(file, "JPEG", exif=exif)
        encoded.append(None if row == 7 else file.getvalue())
    return Table(
        with_rows({"picture": encoded, "y": [row % 2 for row in range(12)]}),
        {"columns": {"picture": {"image": {"height": 3, "width": 3}}}},
        # Transformed examples hold the encoded image.
        lambda columns, _training: {"picture_image": np.array([value or b"" for value in columns["picture"]], object)},
        "y",
        _column("y"),
        stored="parquet",
    )
