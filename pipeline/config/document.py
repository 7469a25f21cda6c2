"""A YAML file as plain values that remember their lines, with `--set` assignments laid over it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from components.errors import InputError

Key = tuple[str | int, ...]


@dataclass
class Document:
    """Plain values, and for every key the place where the user wrote it."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[Key, int] = field(default_factory=dict)
    assignments: dict[Key, str] = field(default_factory=dict)

    def place(self, key: Sequence[str | int]) -> str:
        """Where a field was written: `taxi.yaml:12`, `--set training.steps=x`, or the nearest enclosing section."""
        written = self.written(key)
        while written:
            if written in self.assignments:
                return f"--set {self.assignments[written]}"
            if written in self.lines:
                return f"{self.name}:{self.lines[written]}"
            written = written[:-1]
        return self.name

    def line(self, key: Sequence[str | int]) -> int:
        """The line of a field, or of the nearest enclosing section; assignments come after the whole file."""
        written = self.written(key)
        if written in self.assignments:
            return sys.maxsize
        return self.lines.get(written, 0)

    def written(self, key: Sequence[str | int]) -> Key:
        """The key without the parts that validation put in between (a list made of one value, a union's tag)."""
        known = self.lines.keys() | {key[:end] for key in self.assignments for end in range(1, len(key) + 1)}
        written: Key = ()
        for part in key:
            if (*written, part) in known:
                written = (*written, part)
        return written


def read(path: str) -> Document:
    """Reads a YAML mapping.

    Raises:
      InputError: the file is missing, is no YAML, repeats a key or is no mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"no config at {path}", _known_configs()) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {error}", "give a YAML file with --config FILE") from error
    document = Document(path)
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        values = {} if tree is None else _plain(tree, (), document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}" if mark else path
        raise InputError(
            f"{place}: this is no YAML: {error.problem}", "mend the line; mind colons, quotes and indents"
        ) from error
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: expected sections such as data: and training:, received {_kind(values)}",
            "see configs/taxi.yaml for the shape of a config",
        )
    document.values = values
    return document


def assign(document: Document, assignments: Iterable[str]) -> None:
    """Lays `section.field=value` assignments over a document; values are YAML.

    Raises:
      InputError: an assignment is not of that form.
    """
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        parts = tuple(dotted.strip().split("."))
        if not equals or not all(parts):
            raise InputError(
                f"--set {assignment}: expected section.field=value", "for example --set training.steps=200"
            )
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(
                f"--set {assignment}: the value is no YAML", "quote it, or give it in a config file"
            ) from error
        target = document.values
        for part in parts[:-1]:
            inner = target.get(part)
            if not isinstance(inner, dict):
                inner = {}
                target[part] = inner
            target = inner
        target[parts[-1]] = value
        document.assignments[parts] = assignment


def _plain(node: yaml.Node, key: Key, document: Document) -> Any:
    """The node's plain value; remembers the line of every key on the way."""
    document.lines.setdefault(key, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = yaml.SafeLoader("").construct_object(key_node)
            name = name if isinstance(name, str) else key_node.value
            if name in values:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {name!r} stands here twice", problem_mark=key_node.start_mark
                )
            inner = (*key, name)
            document.lines[inner] = key_node.start_mark.line + 1
            values[name] = _plain(value_node, inner, document)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*key, index), document) for index, item in enumerate(node.value)]
    return yaml.SafeLoader("").construct_object(node)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else repr(value)


def _known_configs() -> str:
    found = sorted(str(path) for path in Path("configs").glob("*.yaml"))
    return (
        f"give one that exists with --config FILE, such as {', '.join(found)}"
        if found
        else "give a file with --config FILE"
    )
