"""Tables of different shapes for tests that draft a config from them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 600
Rows = dict[str, Any]


def random(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def people() -> Rows:
    """As a census is written: spaces behind commas, ` ?` for missing, text labels, amounts that are nearly always 0."""
    chance = random()
    years = chance.integers(17, 90, ROWS)
    gain = np.where(chance.random(ROWS) < 0.9, 0, chance.lognormal(8, 1.5, ROWS).round().astype(int))
    return {
        "years worked": years,
        "job": np.where(chance.random(ROWS) < 0.05, "?", chance.choice(["Sales", "Tech", "Farm"], ROWS)),
        "Capital Gain": gain,
        "country": "here",
        "income": np.where(years + gain / 100 > 60, ">50K", "<=50K"),
    }


def flowers() -> Rows:
    """Few rows, numbers alone, three classes as texts."""
    chance = random()
    kind = chance.integers(0, 3, 90)
    return {
        "length": (kind + chance.normal(0, 0.3, 90)).round(2),
        "width": chance.normal(0, 1, 90).round(3),
        "kind": np.array(["setosa", "virginica", "versicolor"])[kind],
    }


def houses() -> Rows:
    """Semicolons, a price to predict, a copy of it, an identifier, a column without values."""
    chance = random()
    size = chance.lognormal(4.5, 0.4, ROWS).round(1)
    price = (size * 2500 + chance.normal(0, 9000, ROWS)).round(2)
    return {
        "house_id": np.arange(10_000, 10_000 + ROWS),
        "size": size,
        "rooms": np.maximum(1, (size / 25).astype(int)),
        "price_in_thousands": price / 1000,
        "remark": np.full(ROWS, None),
        "price": price,
    }


def trips() -> Rows:
    """Time as texts and as seconds, tags, free text, an id as text, missing numbers."""
    chance = random()
    start = datetime.datetime(2024, 1, 1)
    hours = chance.integers(0, 24 * 300, ROWS)
    words = np.array(["very", "nice", "ride", "with", "a", "long", "way", "round", "the", "old", "town"])
    km = chance.lognormal(1, 1.2, ROWS)
    return {
        "trip": [f"{number:016x}" for number in chance.integers(0, 2**62, ROWS)],
        "began": [(start + datetime.timedelta(hours=int(hour))).isoformat(" ") for hour in hours],
        "ended_at": 1_704_067_200 + hours * 3600 + chance.integers(60, 9000, ROWS),
        "km": np.where(chance.random(ROWS) < 0.1, np.nan, km.round(2)),
        "tags": ["|".join(chance.choice(["night", "rain", "airport", "app"], 2, replace=False)) for _ in range(ROWS)],
        "comment": [" ".join(chance.choice(words, 7)) for _ in range(ROWS)],
        "tip": np.where(chance.random(ROWS) < 0.4, 0, (0.7 * km).round(2)),
        "fare": (2.5 * km + chance.normal(0, 0.5, ROWS)).round(2),
    }


def codes() -> Rows:
    """Label 1 and 2, whole numbers that are codes, a column that is always the same where it is there."""
    chance = random()
    zone = chance.integers(1, 30, ROWS)
    return {
        "zone": zone,
        "flag": chance.integers(0, 2, ROWS),
        "same": np.where(chance.random(ROWS) < 0.5, np.nan, 3.5),
        "outcome": np.where(zone % 3 == 0, 1, 2),
    }


def lists() -> Rows:
    """Parquet: list columns, booleans, timestamps."""
    chance = random()
    seen = [list(chance.choice(["a", "b", "c", "d"], chance.integers(0, 4))) for _ in range(ROWS)]
    return {
        "seen": seen,
        "vector": [list(map(float, chance.normal(size=3))) for _ in range(ROWS)],
        "when": pd.date_range("2024-01-01", periods=ROWS, freq="7h"),
        "member": chance.random(ROWS) < 0.5,
        "bought": [("a" in pages) for pages in seen],
    }


def visits() -> Rows:
    """Parquet: the pages that a person has seen before, with their topics and times, and other lists."""
    chance = random()
    pages = 1_000 + 7 * np.arange(30)
    seen = [chance.integers(0, 30, chance.integers(0, 6)) for _ in range(ROWS)]
    time = 1_767_225_600 + chance.integers(0, 30 * 24 * 3600, ROWS)
    page = chance.integers(0, 30, ROWS)
    return {
        "page": pages[page],
        "topic": [f"topic {number % 5}" for number in page],
        "time": pd.array([None, *time[1:]], "Int64"),
        "past_topics": [[f"topic {past_page % 5}" for past_page in of] for of in seen],
        "past_pages": [pages[of].tolist() for of in seen],
        "past_times": [
            sorted((now - chance.integers(1, 9000, len(of))).tolist()) for now, of in zip(time, seen, strict=True)
        ],
        "tags": [list(chance.choice(["x", "y", "z"], chance.integers(0, 3))) for _ in range(ROWS)],
        "stayed": [current_page in of for current_page, of in zip(page, seen, strict=True)],
    }


SEPARATORS: dict[str, str] = {"people": ", ", "houses": ";"}
TABLES: dict[str, tuple[Callable[[], Rows], str]] = {
    "people": (people, "income"),
    "flowers": (flowers, "kind"),
    "houses": (houses, "price"),
    "trips": (trips, "tip > 0.2 * fare"),
    "codes": (codes, "outcome"),
    "lists": (lists, "bought"),
    "visits": (visits, "stayed"),
}


def write_rows(name: str, rows: Rows, folder: Path) -> str:
    frame = pd.DataFrame(rows)
    if name in ("lists", "visits"):
        path = folder / f"{name}.parquet"
        pq.write_table(pa.Table.from_pandas(frame), path)
        return str(path)
    path = folder / f"{name}.csv"
    separator = SEPARATORS.get(name, ",")
    if len(separator) == 1:
        frame.to_csv(path, sep=separator, index=False)
    else:
        lines = [separator.join(map(str, row)) for row in [list(frame), *frame.itertuples(index=False)]]
        path.write_text("\n".join(lines) + "\n")
    return str(path)
