"""Removes columns from the features of a config's YAML text. Comments, order and style of the other lines stay."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import yaml

from components.base.errors import InputError
from components.base.names import column_name
from pipeline.authoring.config import yaml_values

_Span = tuple[tuple[int, int], tuple[int, int]]
"""Start and end of a cut, each as line and character in the line, from 0."""


def remove_columns(text: str, columns: Collection[str]) -> str:
    """Remove columns, and the crosses that contain them, from the features.

    Args:
      text: A config as YAML.
      columns: Names of the columns, as the features have them.

    Raises:
      InputError: The text declares a column in a way that cannot be cut, such as by an alias.
    """
    values, _ = yaml_values.parse(text)
    features = values.get("features", {})
    declared = [key for key in features.get("columns", {}) if column_name(str(key)) in columns]
    crosses = [
        key
        for key, cross in (features.get("crosses") or {}).items()
        if any(column_name(str(name)) in columns for name in cross.get("columns", ()))
    ]
    expected = _without(values, declared, crosses)
    tree = yaml.compose(text, Loader=yaml.SafeLoader)
    section = _find(tree, "features")
    spans = _cut(_find(section, "columns"), declared) if declared else []
    if crosses:
        # An empty section would not be valid.
        is_all = len(crosses) == len(features["crosses"])
        spans += _cut(section, ["crosses"]) if is_all else _cut(_find(section, "crosses"), crosses)
    shortened = _remove(text, spans)
    try:
        is_right = yaml_values.parse(shortened)[0] == expected
    except yaml.MarkedYAMLError:
        is_right = False
    if not is_right:
        raise InputError(
            f"features: expected a key per column, received a form without which other lines are not valid: "
            f"{', '.join(declared)}",
            "remove the columns by hand",
        )
    return shortened


def _without(values: Any, columns: Sequence[str], crosses: Sequence[str]) -> Any:
    """Return the values of a config without columns and crosses."""
    values = copy.deepcopy(values)
    features = values["features"]
    for name in columns:
        del features["columns"][name]
    for name in crosses:
        del features["crosses"][name]
    if crosses and not features["crosses"]:
        del features["crosses"]
    return values


def _find(mapping: Any, name: str) -> Any:
    """Return the node of a section; the text was parsed before, so that it exists."""
    return next(value for key, value in mapping.value if key.value == name)


def _cut(mapping: Any, names: Collection[str]) -> list[_Span]:
    """Return the spans of entries: whole lines in block style, otherwise up to the next or the previous entry."""
    spans: list[_Span] = []
    last_kept: tuple[int, int] | None = None
    following = [*(_position(key.start_mark) for key, _ in mapping.value[1:]), None]
    for (key, value), next_start in zip(mapping.value, following, strict=True):
        start, end = _position(key.start_mark), _find_end(value)
        if str(key.value) not in names:
            last_kept = end
        elif not mapping.flow_style:
            # An alias has the position of its anchor, and is on the line of the key.
            spans.append(((start[0], 0), (max(start[0], end[0]) + 1, 0)))
        else:
            # The last entry is cut together with the comma before it.
            spans.append((start, next_start) if next_start else (last_kept or start, end))
    return spans


def _position(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line, mark.column


def _find_end(node: yaml.Node) -> tuple[int, int]:
    """Return the end of a node's text. PyYAML's end of a block is behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _find_end(last[1] if isinstance(last, tuple) else last)
    line, column = _position(node.end_mark)
    return (line - 1, column) if column == 0 and line > node.start_mark.line else (line, column)


def _remove(text: str, spans: Sequence[_Span]) -> str:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    parts, position = [], 0
    for (start_line, start_column), (end_line, end_column) in sorted(spans):
        parts.append(text[position : starts[start_line] + start_column])
        position = max(position, starts[end_line] + end_column)
    return "".join((*parts, text[position:]))
