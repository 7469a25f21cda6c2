"""Headers are converted to column names, and similar names are suggested for unknown names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.base.names import column_name, did_you_mean


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("fare", "fare"),
        ("Trip_Miles2", "Trip_Miles2"),
        ("_hidden", "_hidden"),
        ("a__b", "a__b"),
        ("__", "__"),
        ("Trip Miles", "Trip_Miles"),
        ("  fare  ", "fare"),
        ("Fare ($)", "Fare"),
        ("a.b-c/d", "a_b_c_d"),
        ("a\r\nb", "a_b"),
        ("a _ b", "a___b"),
        ("_ fare _", "__fare__"),
        ("2020", "x2020"),
        (" 1st class", "x1st_class"),
        # Accents are dropped. Some letters have an ASCII spelling; the remaining letters become their code point.
        ("Größe", "Grosse"),
        ("Gro\u0308\u00dfe", "Grosse"),
        ("Łódź", "Lodz"),
        ("smørbrød Æ", "smorbrod_Ae"),
        ("价格", "u4ef7u683c"),
        ("Ⅷ", "VIII"),
        ("m²", "m2"),
        ("ﬁne", "fine"),
        ("\uff11\uff12", "x12"),
        ("цена €", "u446u435u43du430"),
        ("", ""),
        ("?!", ""),
        ("🚕", ""),
        ("taxi 🚕", "taxi"),
    ],
)
def test_header_becomes_a_column_name(header: str, name: str) -> None:
    assert column_name(header) == name


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=12))
def test_any_header_becomes_a_valid_or_an_empty_name(header: str) -> None:
    name = column_name(header)
    assert re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)?", name)
    # A valid name does not change, so the function is idempotent.
    assert column_name(name) == name


def test_similar_name_is_suggested() -> None:
    assert did_you_mean("fair", ["tips", "fare"]) == "; did you mean 'fare'?"
    assert did_you_mean("x", ["tips", "fare"]) == "; expected one of fare, tips"
    assert did_you_mean("x", []) == did_you_mean("x", map(str, range(100))) == ""
