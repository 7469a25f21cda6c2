"""Formatted numbers, such as 1,234 or 5 %, are parsed like plain numbers in Python and pandas."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.ingest import number_texts
from components.ingest.text_config import NumberForm


def convert(texts: list[str], form: NumberForm, decimal: str = ".") -> list[str]:
    column = pa.array([text.encode() for text in texts], pa.binary())
    return [text.decode() for text in number_texts.plain_numbers(column, form, decimal).to_pylist()]


@settings(max_examples=100, deadline=None)
@given(st.decimals(-(10**12), 10**12, places=2))
def test_formatted_numbers_are_converted_to_plain_numbers(number: object) -> None:
    value = float(number)  # type: ignore[arg-type]
    point, size = f"{number:,}", f"{abs(number):,}"  # type: ignore[arg-type]
    comma = point.translate(str.maketrans(",.", ".,"))
    negative = str(number).startswith("-")
    assert float(convert([point], "thousands")[0]) == value
    assert float(convert([comma], "decimal_comma")[0]) == value
    assert float(convert([comma.replace(".", "\u00a0")], "decimal_comma")[0]) == value
    assert convert([comma], "decimal_comma", ",") == [str(number).replace(".", ",")]
    assert float(convert([f"{point} %"], "percent")[0]) == float(f"{number}e-2")
    for text in (f"${point}", f"{point} €", f"EUR {point}", f"{'-' if negative else ''}£{size}"):
        assert float(convert([text], "currency")[0]) == value, text
    assert float(convert([f"({size})" if negative else size], "accounting")[0]) == value
    assert float(convert([f"(${size})" if negative else f"${size}"], "accounting")[0]) == value


@pytest.mark.parametrize(("form", "separators"), [("thousands", (",", ".")), ("decimal_comma", (".", ","))])
def test_separators_are_parsed_as_by_pandas(form: NumberForm, separators: tuple[str, str]) -> None:
    thousands, decimal = separators
    texts = [f"1{thousands}234{thousands}567", f"3{decimal}14", "12", f"-1{thousands}000{decimal}5"]
    frame = pd.read_csv(io.StringIO("\n".join(["x", *texts])), sep=";", thousands=thousands, decimal=decimal)
    np.testing.assert_array_equal([float(text) for text in convert(texts, form)], frame["x"])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("thousands", "1,23"),
        ("thousands", "1,2,3"),
        ("thousands", "$1"),
        ("decimal_comma", "2.5"),
        ("decimal_comma", "31.12.2024"),
        ("percent", "12"),
        ("percent", "about 5 %"),
        ("currency", "(5)"),
        ("currency", "1,200 apples"),
        ("accounting", "(5"),
        ("accounting", "n/a"),
    ],
)
def test_text_in_another_form_is_unchanged(form: NumberForm, text: str) -> None:
    assert convert([text], form) == [text]


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["1,234,567", "12", "999"], "thousands"),
        (["1,234.5", "3,000"], "thousands"),
        (["3,14", "2,5"], "decimal_comma"),
        (["12 %", "5%"], "percent"),
        (["$1,200", "$5"], "currency"),
        (["€ 5", "7,50 EUR"], None),
        (["€ 5", "1,200.50 €"], "currency"),
        (["(123)", "45"], "accounting"),
        # A comma may separate thousands or decimals. Lists, codes, versions and dates are not numbers.
        (["1,234", "2,500"], None),
        (["1,2,3", "4,5"], None),
        (["01234", "98765"], None),
        (["1.2.3", "2.0.1"], None),
        (["31.12.2024"], None),
        (["12", "x"], None),
    ],
)
def test_form_is_found_if_the_texts_are_unambiguous(texts: list[str], form: NumberForm | None) -> None:
    column = pa.array([text.encode() for text in texts], pa.binary())
    assert number_texts.find_form(column, pa.array([1] * len(texts)), ".") == form


def test_one_percent_of_the_values_may_be_other_texts() -> None:
    column = pa.array([b"$5", b"unknown"], pa.binary())
    assert number_texts.find_form(column, pa.array([99, 1]), ".") == "currency"
    assert number_texts.find_form(column, pa.array([98, 2]), ".") is None
