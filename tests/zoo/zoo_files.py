"""Tables that are difficult to read, split or label; see `zoo_tables`."""

from __future__ import annotations

import gzip
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import zoo_reference as reference
from zoo_reference import Training
from zoo_tables import Columns, Expected, Table, table, vocabulary_ids, with_rows, write


def _z_score_of(name: str, label: str = "y") -> dict[str, object]:
    """Return the fields of a table with one number, its z-score, and a label of 0 and 1."""
    return {
        "features": {"columns": {name: "z_score"}},
        "expected": lambda columns, training: {f"{name}_z_score": reference.z_score(columns[name], training)},
        "label": label,
        "labels": lambda columns: np.array(columns[label]),
    }


def _numbers(seed: int, rows: int = 90) -> list[float]:
    return [float(value) for value in np.random.default_rng(seed).normal(40, 9, rows).round(2)]


def _halves(rows: int = 90) -> list[int]:
    return [row % 2 for row in range(rows)]


@table
def german_spreadsheet() -> Table:
    """Semicolons, decimal commas with points for thousands, Latin-1, and signs for missing values."""
    price = [None if row % 8 == 0 else 1000 * value for row, value in enumerate(_numbers(31))]
    city = [["Köln", "Zürich", "Gießen", None][row % 4] for row in range(90)]

    def store(columns: Columns, folder: Path) -> Path:
        def field(value: object) -> str:
            if value is None:
                return "k.A."
            return f"{value:,.2f}".translate(str.maketrans(",.", ".,")) if isinstance(value, float) else str(value)

        lines = [columns, *zip(*columns.values(), strict=True)]
        path = folder / "tabelle.csv"
        path.write_text("".join(";".join(map(field, line)) + "\n" for line in lines), encoding="latin-1")
        return path

    def compute(columns: Columns, training: Training) -> Expected:
        return {
            "price_z_score": reference.z_score(columns["price"], training),
            "city_vocab": vocabulary_ids(columns["city"], training, 10_000),
        }

    return Table(
        with_rows({"price": price, "city": city, "y": _halves()}),
        {"columns": {"price": "z_score", "city": "vocab"}},
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        data={"csv": {"delimiter": ";", "decimal": ",", "encoding": "latin-1", "null_values": ["k.A."]}},
        store=store,
    )


@table
def several_files() -> Table:
    """Return a folder with plain and compressed files."""

    def store(columns: Columns, folder: Path) -> Path:
        parts = folder / "parts"
        parts.mkdir()
        for number in range(3):
            rows = {name: values[number::3] for name, values in columns.items()}
            path = write(rows, "csv", parts / f"{number}.csv")
            if number == 2:
                path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
        return parts

    return Table(with_rows({"x": _numbers(32), "y": _halves()}), store=store, **_z_score_of("x"))  # type: ignore[arg-type]


@table
def codes() -> Table:
    """Return postal codes with leading zeros and telephone numbers, which must stay text."""
    random = np.random.default_rng(33)
    code = [f"{value:05}" for value in random.choice([1067, 10115, 99084], 90)]
    phone = [f"+4930{value}" for value in random.choice([1234567, 7654321], 90)]
    return Table(
        with_rows({"code": code, "phone": phone, "y": _halves()}),
        {"columns": {"code": "vocab", "phone": "vocab"}},
        lambda columns, training: {
            f"{name}_vocab": vocabulary_ids(columns[name], training, 10_000) for name in ("code", "phone")
        },
        "y",
        lambda columns: np.array(columns["y"]),
    )


@table
def number_in_the_last_row() -> Table:
    """Integers, but for a decimal number in the last row, and a column whose values are all equal."""
    count = [*range(10, 99), 3.5]
    return Table(
        with_rows({"count": count, "same": [7] * 90, "y": _halves()}),
        {"columns": {"count": "z_score", "same": ["z_score", "min_max"]}},
        lambda columns, training: {
            "count_z_score": reference.z_score(columns["count"], training),
            "same_z_score": reference.z_score(columns["same"], training),
            "same_min_max": reference.min_max(columns["same"], training),
        },
        "y",
        lambda columns: np.array(columns["y"]),
    )


@table
def newest_rows_for_evaluation() -> Table:
    """Return a split by times of several time zones: the first two thirds of the rows are for training."""
    random = np.random.default_rng(34)
    start = datetime(2024, 3, 30, 22, tzinfo=timezone.utc)
    moments = [start + timedelta(minutes=int(minute)) for minute in random.permutation(90)]
    zones = [timezone(timedelta(hours=hours)) for hours in (-8, 0, 2, 9)]
    time = [moment.astimezone(zones[row % 4]).isoformat() for row, moment in enumerate(moments)]
    columns = with_rows({"x": _numbers(34), "time": time, "y": _halves()})
    columns["part"] = ["train" if moment < start + timedelta(minutes=60) else "eval" for moment in moments]
    split = {"by": "time", "columns": "time", "train": 2, "eval": 1}
    return Table(columns, data={"split": split}, **_z_score_of("x"))  # type: ignore[arg-type]


@table
def side_tables() -> Table:
    """Return the size of a shop by a key with gaps, and the price of a product as of a time; some rows do not match."""
    random = np.random.default_rng(36)
    shop = [None if row % 11 == 0 else int(row * 7 % 13) + 2**53 for row in range(90)]
    product = [["a", "b", "é", None][row % 4] for row in range(90)]
    day = [(datetime(2024, 2, 25) + timedelta(days=int(at))).date().isoformat() for at in random.integers(0, 9, 90)]
    shops = pd.DataFrame({"id": np.arange(10) + 2**53, "size": random.normal(50, 9, 10).round(2)})
    prices = pd.DataFrame({"item": random.choice(["a", "b", "é"], 30), "price": random.normal(9, 2, 30).round(2)})
    prices["day"] = pd.Timestamp("2024-02-24") + pd.to_timedelta(random.integers(0, 240, 30), unit="h")

    def store(columns: Columns, folder: Path) -> Path:
        shops.to_csv(folder / "shops.csv.gz", index=False)
        prices.to_parquet(folder / "prices.parquet", index=False)
        return write(columns, "csv", folder / "table.csv")

    def compute(columns: Columns, training: Training) -> Expected:
        sizes = dict(zip(shops["id"], shops["size"], strict=True))
        size = [sizes.get(shop) for shop in columns["shop"]]
        rows = pd.DataFrame({"item": columns["product"], "day": pd.to_datetime(columns["day"])})
        known = rows[rows["item"].notna()].sort_values("day", kind="stable")
        past = prices.sort_values("day", kind="stable")
        joined = pd.merge_asof(known.reset_index(), past, on="day", by="item", tolerance=pd.Timedelta("3d"))
        price = joined.set_index("index")["price"].reindex(range(len(rows)))
        prices_of_rows = [None if np.isnan(value) else float(value) for value in price]
        return {
            "shop_size_z_score": reference.z_score(size, training),
            "price_z_score": reference.z_score(prices_of_rows, training),
            "price_missing": reference.missing(prices_of_rows),
        }

    joins = [
        {"path": "shops.csv.gz", "on": {"shop": "id"}, "prefix": "shop_"},
        {"path": "prices.parquet", "on": {"product": "item"}, "as_of": "day", "within": "3d"},
    ]
    return Table(
        with_rows({"shop": shop, "product": product, "day": day, "y": _halves()}),
        {"columns": {"shop_size": "z_score", "price": ["z_score", "missing"]}},
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        data={"join": joins},
        store=store,
    )


@table
def class_only_in_evaluation() -> Table:
    """Return rows of a class that only evaluation has, so the model lacks it, and rows without a class."""
    names = ["cat", "dog", "bird"]
    kind = ["cow" if row in (2, 5) else None if row in (8, 9) else names[row // 3 % 3] for row in range(90)]

    def labels(columns: Columns) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        training = [kind for kind, part in zip(columns["kind"], columns["part"], strict=True) if part == "train"]
        classes = reference.vocabulary([kind.encode() for kind in training if kind], 10)
        return np.array([classes.index(kind.encode()) if kind and kind != "cow" else -1 for kind in columns["kind"]])

    return Table(
        with_rows({"x": _numbers(35), "kind": kind}),
        {"columns": {"x": "z_score"}},
        lambda columns, training: {"x_z_score": reference.z_score(columns["x"], training)},
        "kind",
        labels,
        "multiclass",
    )
