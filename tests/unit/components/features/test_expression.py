"""The grammar of label expressions: accepted texts, their values and rejected texts."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.features import expression


class Numbers:
    """Operations of expressions on plain Python numbers."""

    def __getattr__(self, name: str) -> Any:
        plain = {
            "constant": lambda value: value, "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
            "divide": operator.truediv, "negative": operator.neg, "equal": operator.eq, "not_equal": operator.ne,
            "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
            "logical_and": lambda a, b: a and b, "logical_or": lambda a, b: a or b, "logical_not": operator.not_,
        }  # fmt: skip
        return plain[name]


@pytest.mark.parametrize(
    ("text", "columns", "value"),
    [
        ("tips > 0.2 * fare", {"tips": 3, "fare": 10}, True),
        ("tips > 0.2 * fare", {"tips": 2, "fare": 10}, False),
        ("income == '>50K'", {"income": ">50K"}, True),
        ("not (a < 1 or b >= 2) and a != b", {"a": 1, "b": 0}, True),
        ("-a + b / 2 - 1", {"a": 1, "b": 6}, 1.0),
        ("clicked", {"clicked": 1}, 1),
        ("class == 'yes' and from < match", {"class": "yes", "from": 1, "match": 2}, True),
        ("'class' == x", {"x": "class"}, True),
        ("`Fare ($)` > Größe - 1e-1", {"Fare": 2, "Grosse": 2}, True),
        ("`not` + `価格`", {"not": 1, "u4fa1u683c": 2}, 3),
        ("x == 'a`b`'", {"x": "a`b`"}, True),
        ("x in ('a', 'b') and y not in (1, -2)", {"x": "b", "y": 2}, True),
        ("x in [3] or y in ('a')", {"x": 4, "y": "a"}, True),
        ("x not in (1, 2)", {"x": 2}, False),
    ],
)
def test_expression_is_evaluated(text: str, columns: dict[str, Any], value: object) -> None:
    parsed = expression.parse(text)
    assert set(parsed.columns) == set(columns)
    assert parsed.evaluate(columns, Numbers()) == value


def test_name_of_a_column_is_not_an_expression() -> None:
    assert expression.parse(" clicked ").is_column
    assert not expression.parse("clicked > 0").is_column


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("class", "class"), ("lambda", "lambda"), ("True", "True"), ("is it spam?", "is_it_spam"), ("x.y", "x_y"),
        ("Größe", "Grosse"), ("Temp [°C]", "Temp_C"), ("ラベル", "u30e9u30d8u30eb"), ("`Fare ($)`", "Fare"),
        ("`terms and conditions`", "terms_and_conditions"), ("`not`", "not"), ("x if y", "x_if_y"),
    ],
)  # fmt: skip
def test_header_of_a_column_is_accepted_as_a_label(header: str, name: str) -> None:
    parsed = expression.parse(header)
    assert parsed.is_column
    assert parsed.columns == (name,)
    assert parsed.evaluate({name: 7}, Numbers()) == 7


@pytest.mark.parametrize("name", ["class", "or", "not", "in", "None", "fare"])
def test_column_text_is_parsed_as_the_column(name: str) -> None:
    assert expression.parse(f"{expression.column_text(name)} == 1").columns == (name,)


@pytest.mark.parametrize("text", ["x" + " + 1" * 5000, "-" * 5000 + "x", "not " * 5000 + "x"])
def test_deep_expression_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected fewer nested operations, received"):
        expression.parse(text)


@pytest.mark.parametrize(
    "text",
    ["f(x)", "x.y > 2", "x[0] > 2", "(lambda: x)", "(x if y else z)", "[x] == 1", "x ** 2", "x // 2", "x < y < z",
     "x is y > 2", "True == x", "(x := 1)", "f'{x}'", "x; y > 1", "", "1 + 2", "None == x", "x in (y)", "b'a' == x",
     "x in ()", "x in 'a' in 'b'",
     "?", "`` > 1", "`?` > 1", "Fare ($)", "tips >", "`Fare ($)`x > 1", "℘ > `Fare ($)`", "t\u07efx > 1"],
)  # fmt: skip
def test_other_syntax_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"label|expected|chain"):
        expression.parse(text)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("fare > 0 and pay in ('Cash', 'Card')", {"pay"}),
        ("active and not (a < b)", set()),
        ("day >= '2024-01-01'", {"day"}),
    ],
)
def test_columns_of_a_condition_are_numbers_or_texts(text: str, texts: set[str]) -> None:
    parsed, found = expression.parse_condition(text)
    assert found == texts <= set(parsed.columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1", "expected a condition such as fare > 0, received 'x \\+ 1'"),
        ("-x", "expected a condition such as fare > 0, received '-x'"),
        ("x == 'a' and x > 3", "expected either numbers or strings beside 'x', received both"),
        ("x and x == 'a'", "expected either numbers or strings beside 'x', received both"),
        ("x + 'a' == 3", r"expected a number, received a text in \"x \+ 'a'\""),
        ("(x > 1) + 2 == 3", r"expected a number, received a condition in '\(x > 1\) \+ 2'"),
        ("x and 'a'", "expected a condition, received a text"),
        ("f(x) > 1", "expected columns, numbers, strings"),
    ],
)
def test_other_texts_are_no_conditions(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expression.parse_condition(text)


@given(st.text(max_size=40))
def test_every_text_is_either_parsed_or_rejected(text: str) -> None:
    try:
        parsed = expression.parse(text)
    except ValueError:
        return
    assert parsed.columns
