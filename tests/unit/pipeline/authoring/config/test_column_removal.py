"""Columns are removed from a config's text: block and flow style, crosses, comments, headers; what cannot be cut."""

from __future__ import annotations

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config.column_removal import remove_columns

BLOCK = """\
# Trips.
features:
  columns: # all of them
    fare: [z_score, log] # in dollars
    # The company that owns the car.
    company:
      - vocab:
          size: 10
      - missing
    # About the day.
    "trip day": {date_parts: [hour,
                              weekday]}
    note: >
      text
    last: z_score
    # The end of the columns.
  crosses:
    pair: {columns: [company, fare], buckets: 10}
    kept: {columns: [fare, last], buckets: 10}
model:
  kind: gbt # trees
"""


@pytest.mark.parametrize(
    ("columns", "removed"),
    [
        # Without the column fare there is no cross, so that the section is removed.
        (["fare"], [3, 16, 17, 18]),
        (["company"], [5, 6, 7, 8, 17]),
        (["trip_day"], [10, 11]),
        (["note", "last"], [12, 13, 14, 18]),
        (["absent"], []),
    ],
)
def test_whole_lines_of_a_block_are_removed(columns: list[str], removed: list[int]) -> None:
    lines = BLOCK.splitlines(keepends=True)
    expected = "".join(line for at, line in enumerate(lines) if at not in removed)
    assert remove_columns(BLOCK, columns) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["a"], "{b: [log, missing], c: log}"),
        (["b"], "{a: z_score, c: log}"),
        (["c"], "{a: z_score, b: [log, missing]}"),
        (["b", "c"], "{a: z_score}"),
        (["a", "b"], "{c: log}"),
    ],
)
def test_entries_in_braces_are_removed(columns: list[str], expected: str) -> None:
    text = "features: {columns: {a: z_score, b: [log, missing], c: log}} # all\nmodel: {kind: gbt}\n"
    shortened = remove_columns(text, columns)
    assert shortened == f"features: {{columns: {expected}}} # all\nmodel: {{kind: gbt}}\n"
    assert yaml.safe_load(shortened)["features"]["columns"].keys() == {"a", "b", "c"} - set(columns)


def test_aliases_of_a_removed_column_are_refused() -> None:
    text = "features:\n  columns:\n    a: &numbers [log, missing]\n    b: *numbers\n    c: log\n"
    assert remove_columns(text, ["b"]) == text.replace("    b: *numbers\n", "")
    with pytest.raises(InputError, match="expected a key per column") as refused:
        remove_columns(text, ["a"])
    assert "remove the columns by hand" in str(refused.value.remedy)
