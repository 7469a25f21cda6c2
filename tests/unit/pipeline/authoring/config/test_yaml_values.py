"""Tests for the YAML parser: values with their lines, and errors for invalid or excessively large documents."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.authoring.config import yaml_values

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)

# YAML does not allow NUL and lone surrogates. PyYAML does not preserve \x85, a line break that it reads as a space.
_TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\x85"), max_size=8) | st.sampled_from(
    ["yes", "~", "1e3", "0x1F", ".inf", "2024-01-01", "12:30", "<<", "=", "- a", "a: b", "#", "'", '"', " "]
)
_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4), max_leaves=12
)


@settings(deadline=None)
@given(_VALUES, st.booleans())
def test_written_values_are_parsed_unchanged(value: object, flow: bool) -> None:
    text = yaml.safe_dump({"a": value}, allow_unicode=True, default_flow_style=flow)
    assert yaml_values.parse(text)[0] == {"a": value}


def test_values_are_parsed_with_their_lines() -> None:
    values, lines = yaml_values.parse("a: 1\nb: &b\n  - {c: x}\nd: *b\n5: .5\n")
    assert values == {"a": 1, "b": [{"c": "x"}], "d": [{"c": "x"}], "5": 0.5}
    assert lines == {(): 1, ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "c"): 3, ("d",): 4, ("d", 0): 3, ("5",): 5} | {
        ("d", 0, "c"): 3
    }


def test_empty_document_is_parsed_as_none() -> None:
    assert yaml_values.parse("# nothing\n")[0] is None


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: \x00", 2, r"unexpected character '\x00'"),
        ('a: "x\\0"', 1, "expected a text without NUL"),
        ("a: 2024-13-45", 1, "'2024-13-45' is no value of its type: month must be in 1..12"),
        ("a:\n  b: 1\n  b: 2", 3, "the key 'b' appears twice"),
        ("a: 1\n[1, 2]: x", 2, "expected a text as the key, received a list or a mapping"),
        ("a: 1\n? {b: c}\n: x", 2, "expected a text as the key, received a list or a mapping"),
        ("a: !!python/object:os.system x", 1, "could not determine a constructor for the tag"),
        (f"a: {'[' * 3000}{']' * 3000}", 1, "expected at most 50 levels, received more"),
        ("a: &a [*a]", 1, "expected at most 50 levels, received more"),
        ("a: &a\n  b: *a", 1, "expected at most 50 levels, received more"),
        (ALIASES, 1, "expected at most 200,000 values, received more: aliases repeat them"),
        (f"a: {2**63}", 1, "expected a number of at most 63 bits"),
    ],
)
def test_error_names_line_and_problem(text: str, line: int, problem: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as refusal:
        yaml_values.parse(text)
    assert refusal.value.problem is not None
    assert problem in refusal.value.problem
    assert refusal.value.problem_mark is not None
    assert refusal.value.problem_mark.line + 1 == line
