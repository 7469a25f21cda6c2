"""Tests for the features of text, date and ID columns, which depend on the values and names of the columns."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from components.base.errors import InputError
from components.data.date_texts import Order
from pipeline.authoring.config import load
from pipeline.authoring.scaffold import draft
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice

ROWS = 400


def choose_features(
    name: str, values: Any, folder: Path, date_order: Order | None = None
) -> tuple[FeatureChoice | ExcludedColumn, list[Any]]:
    """Draft a config for a table with a given column.

    Args:
      name: Name of the column.
      values: Values of the column.
      folder: Folder of the table and of the drafted config.
      date_order: Option for the order of day, month and year.

    Returns:
      The choice for the column, and its operations in the config.
    """
    chance = np.random.default_rng(3)
    frame = pd.DataFrame({name: list(values), "size": chance.normal(size=ROWS), "y": chance.integers(0, 2, ROWS)})
    path = folder / "table.csv"
    frame.to_csv(path, index=False)
    drafted = draft([str(path)], "y", date_order=date_order)
    config = folder / "drafted.yaml"
    config.write_text(drafted.config("schema.pbtxt"))
    return drafted.columns[name], list(load(str(config)).config.features.columns.get(name, []))


def make_dates(form: str, first: datetime = datetime(2024, 1, 1), days: int = 1) -> list[str]:
    return [(first + timedelta(days=days * row, minutes=7 * row)).strftime(form) for row in range(ROWS)]


@pytest.mark.parametrize(
    ("form", "order"),
    [
        ("%d.%m.%Y", "dmy"), ("%d/%m/%Y", "dmy"), ("%m/%d/%Y", "mdy"), ("%m-%d-%Y", "mdy"), ("%Y/%m/%d", "ymd"),
        ("%d.%m.%Y %H:%M", "dmy"), ("%m/%d/%Y %I:%M %p", "mdy"), ("%Y-%m-%dT%H:%M:%SZ", "ymd"),
        ("%Y-%m-%d %H:%M:%S+02:00", "ymd"), ("%Y-%m-%d %H:%M:%S+00", "ymd"), ("%Y-%m-%dT%H:%M:%S GMT", "ymd"),
        ("%-m/%-d/%Y %H:%M +0530", "mdy"), ("%Y-%-m-%-d", "ymd"),
    ],
)  # fmt: skip
def test_dates_are_recognized_with_the_order_of_their_parts(form: str, order: str, tmp_path: Path) -> None:
    values = make_dates(form)
    values[3] = "00.00.0000"
    choice, (op,) = choose_features("when", values, tmp_path)
    assert (op.op, op.order) == ("date_parts", order)
    assert ("hour" in op.parts) == ("%M" in form)
    assert "1 texts are no dates" in choice.why
    assert "for public holidays, add holiday to parts, and holidays: DE" in choice.why
    assert "holiday" not in op.parts
    assert (f"order {order}: " in choice.why) == (order != "ymd")


@pytest.mark.parametrize("order", ["dmy", "mdy"])
def test_ambiguous_dates_require_an_option(order: Order, tmp_path: Path) -> None:
    values = [f"{1 + row % 12:02}/{1 + row % 11:02}/2024" for row in range(ROWS)]
    with pytest.raises(InputError, match=r"the dates of the column 'when', such as '.*', begin with") as refused:
        choose_features("when", values, tmp_path)
    assert "--date-order dmy" in refused.value.remedy
    choice, (op,) = choose_features("when", values, tmp_path, order)
    assert op.order == order
    assert "by --date-order" in choice.why


def test_option_does_not_change_an_unambiguous_order(tmp_path: Path) -> None:
    _, (op,) = choose_features("when", make_dates("%d.%m.%Y"), tmp_path, "mdy")
    assert op.order == "dmy"


@pytest.mark.parametrize(
    "values",
    [
        [f"{1 + row % 12}.{row % 7}.{row % 9}" for row in range(ROWS)],
        [f"{row % 30:02}.13.2024" for row in range(ROWS)],
        [("31.12.2024", "never")[row % 2] for row in range(ROWS)],
    ],
)
def test_texts_that_resemble_dates_are_treated_as_texts(values: list[str], tmp_path: Path) -> None:
    assert [op.op for op in choose_features("version", values, tmp_path)[1]] == ["vocab"]


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("customer_id", [7919 * row for row in range(ROWS)], "identifier"),
        ("CustomerId", [7919 * row for row in range(ROWS)], "identifier"),
        ("customerid", [7919 * (row % 300) for row in range(ROWS)], "identifier"),
        ("transaction_no", [f"TX-{row:06}" for row in range(ROWS)], "identifier"),
        ("invoiceNumber", [f"RE {row % 300}" for row in range(ROWS)], "identifier"),
        ("ref", [f"{row:08x}-0000-4000-8000-{row:012x}" for row in range(ROWS)], "400 UUIDs .* identifiers"),
        ("contact", [f"user{row}@example.com" for row in range(ROWS)], "400 e-mail addresses .* identifiers"),
        ("page", [f"https://example.com/{row % 300}" for row in range(ROWS)], "300 URLs .* an identifier"),
        ("digest", [f"{row:032x}" for row in range(ROWS)], "400 hashes .* identifiers"),
        ("call", [f"+49301{row:06}" for row in range(ROWS)], "400 telephone numbers .* identifiers"),
        ("full_name", [f"Anna Maria van Dyk{row}" for row in range(ROWS)], "400 texts .* names"),
    ],
)
def test_identifiers_are_not_features(name: str, values: list[Any], why: str, tmp_path: Path) -> None:
    choice, ops = choose_features(name, values, tmp_path)
    assert not ops
    assert re.search(why, choice.why)


@pytest.mark.parametrize(
    ("name", "values", "ops"),
    [
        ("user_id", [row % 16 for row in range(ROWS)], ["vocab"]),
        ("zip", [f"{row % 80:05}" for row in range(ROWS)], ["vocab"]),
        ("zip_code", [10_000 + row % 80 for row in range(ROWS)], ["vocab"]),
        ("account", [10**19 + row % 80 for row in range(ROWS)], ["vocab"]),
        ("contact", [f"user{row % 50}@example.com" for row in range(ROWS)], ["vocab"]),
        ("paid", [row % 80 for row in range(ROWS)], ["z_score", "piecewise_linear"]),
        ("note", [f"a note of some words number {row}" for row in range(ROWS)], ["text"]),
        ("note", [f"a note of some words number {row % 300}" for row in range(ROWS)], ["text"]),
        ("state", [f"never been married before {'abc'[row % 3]}" for row in range(ROWS)], ["vocab"]),
        ("product_name", [f"Wireless mouse with 2.4 GHz, model {row}" for row in range(ROWS)], ["text"]),
    ],
)
def test_repeated_ids_are_embedded_and_free_text_is_split_into_words(
    name: str, values: list[Any], ops: list[str], tmp_path: Path
) -> None:
    assert [op.op for op in choose_features(name, values, tmp_path)[1]] == ops


@pytest.mark.parametrize("unit", ["seconds", "milliseconds"])
@pytest.mark.parametrize("first", [1900, 1950, 1985, 2000])
def test_times_before_2000_are_recognized_by_the_name_of_the_column(unit: str, first: int, tmp_path: Path) -> None:
    days = np.arange(ROWS) * 20 + (datetime(first, 1, 1) - datetime(1970, 1, 1)).days
    days[ROWS // 4 :] += (datetime(1990, 1, 1) - datetime(first, 1, 1)).days
    times = (days * 86_400 + 3_600) * (1 if unit == "seconds" else 1000)
    _, ops = choose_features("created_at", times.tolist(), tmp_path)
    (op,) = ops
    assert (op.op, op.unit) == ("date_parts", unit)


@pytest.mark.parametrize("values", [range(1, ROWS + 1), [20_240_101 + row % 28 for row in range(ROWS)]])
def test_small_numbers_in_a_column_named_time_are_not_dates(values: Any, tmp_path: Path) -> None:
    _, ops = choose_features("time", list(values), tmp_path)
    assert "date_parts" not in [op.op for op in ops]


@pytest.mark.parametrize(
    ("copy", "original"),
    [
        (lambda table: table["sex"].map({"f": 0, "m": 1}), "sex"),
        (lambda table: 1 - (table["sex"] == "m") * 1, "sex"),
        (lambda table: table["celsius"] * 1.8 + 32, "celsius"),
        (lambda table: -table["celsius"], "celsius"),
        (lambda table: table["rooms"] ** 2, None),
        (lambda table: table["sex"].map({"f": 162.5, "m": 175.0}), None),
        (lambda table: table["sex"].map({"f": "female", "m": "male"}), "sex"),
        (lambda table: table["celsius"] ** 2, None),
        (lambda table: table["celsius"] + np.arange(ROWS) * 1e-3, None),
        (lambda table: table["sex"].where(table.index != 7), None),
        (lambda table: np.arange(ROWS) // 2, None),
    ],
)
def test_copies_of_a_column_are_excluded(copy: Any, original: str | None, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "sex": chance.choice(["f", "m"], ROWS),
            "celsius": chance.normal(15, 8, ROWS),
            "rooms": chance.integers(1, 9, ROWS),
            "pair": chance.permutation(ROWS) // 2,
            "y": chance.integers(0, 2, ROWS),
        }
    )
    table["copy"] = copy(table)
    table.to_csv(tmp_path / "table.csv", index=False)
    choice = draft([str(tmp_path / "table.csv")], "y").columns["copy"]
    expected = f"a copy of {original}: each value corresponds to one of its values"
    assert (choice.why == expected) == (original is not None)
    assert isinstance(choice, ExcludedColumn) == (original is not None)


def test_flag_that_is_rarely_set_has_no_logarithm(tmp_path: Path) -> None:
    _, ops = choose_features("rare", [int(row % 50 == 0) for row in range(ROWS)], tmp_path)
    assert [op.op for op in ops] == ["z_score"]


@pytest.mark.parametrize(
    ("ids", "group"),
    [
        ({"patient_id": np.arange(ROWS) // 4}, "patient_id"),
        ({"nr": np.arange(ROWS) // 8}, "nr"),
        ({"Subject": [f"p{row % 80}" for row in range(ROWS)]}, "Subject"),
        ({"customerid": [7919 * (row % 300) for row in range(ROWS)]}, "customerid"),
        # Rows without an ID would be one large group.
        ({"patient_id": [row // 4 if row % 9 else None for row in range(ROWS)]}, None),
        # A shop has enough rows that it is known when the model predicts.
        ({"shop_id": np.arange(ROWS) % 20}, None),
        ({"patient_id": np.arange(ROWS)}, None),
        ({"zip_code": 10_000 + np.arange(ROWS) % 80}, None),
        ({"age": np.arange(ROWS) // 8}, None),
        # Users and items of interactions, which a model has to know.
        ({"user_id": np.arange(ROWS) % 80, "item_id": np.arange(ROWS) // 5}, None),
    ],
)
def test_rows_of_a_person_stay_in_one_split(ids: dict[str, Any], group: str | None, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    table = pd.DataFrame({**ids, "size": chance.normal(size=ROWS), "y": chance.integers(0, 2, ROWS)})
    table.to_csv(tmp_path / "table.csv", index=False)
    drafted = draft([str(tmp_path / "table.csv")], "y")
    (tmp_path / "drafted.yaml").write_text(drafted.config("schema.pbtxt"))
    split = load(str(tmp_path / "drafted.yaml")).config.data.split
    assert (split.by, split.columns) == (("group", (group,)) if group else ("hash", ()))
    if group:
        choice = drafted.columns[group]
        assert isinstance(choice, ExcludedColumn)
        assert f"rows with the same {group} stay in one split" in choice.why


@pytest.mark.parametrize(("words", "most"), [(10, 64), (150, 300), (5_000, 2_000)])
def test_words_of_long_texts_are_not_dropped(words: int, most: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    texts = [" ".join(chance.choice(["red", "green", "blue"], words)) for _ in range(ROWS)]
    _, [op] = choose_features("note", texts, tmp_path)
    assert (op.op, op.max_values, op.weighting) == ("text", most, "tf_idf")
