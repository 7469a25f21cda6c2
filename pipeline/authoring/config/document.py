"""Reads a YAML file as plain values with their line numbers, and applies `--set` assignments.

All problems of a config are reported together, each with its file, line and field, the expected and the received
value, and a suggestion.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from components.base.config_section import Problem
from components.base.errors import InputError
from components.base.files import read_text
from components.base.names import did_you_mean
from pipeline.authoring.config import yaml_values
from pipeline.authoring.config.yaml_values import Key


@dataclass
class Document:
    """A config as plain values.

    Attributes:
      name: Name of the config for error messages, usually the path of the file.
      values: Values by key, as nested dictionaries and lists.
      lines: Key → line in the file, from 1.
      assignments: Key → the `--set` assignment that set it.
    """

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[Key, int] = field(default_factory=dict)
    assignments: dict[Key, str] = field(default_factory=dict)

    def position(self, key: Sequence[str | int]) -> str:
        """Return where a field was written, such as `taxi.yaml:12` or `--set training.steps=x`.

        If the field was not written, return the position of the nearest enclosing section.
        """
        written = self.written(key)
        while written:
            if written in self.assignments:
                return f"--set {self.assignments[written]}"
            if written in self.lines:
                return f"{self.name}:{self.lines[written]}"
            written = written[:-1]
        return self.name

    def line(self, key: Sequence[str | int]) -> int:
        """Return the line of a field, to sort problems.

        Return 0 for a field that was not written, and a number greater than all lines for an assignment.
        """
        written = self.written(key)
        if written in self.assignments:
            return sys.maxsize
        return self.lines.get(written, 0)

    def written(self, key: Sequence[str | int]) -> Key:
        """Return the key as the user wrote it.

        Validation inserts parts into keys: the index of a list that was made of a single value, or the tag of a union.
        """
        keys = self.lines.keys() | {key[:end] for key in self.assignments for end in range(1, len(key) + 1)}
        written: Key = ()
        for part in key:
            if (*written, part) in keys:
                written = (*written, part)
        return written


def read(path: str) -> Document:
    """Read a YAML mapping.

    Raises:
      InputError: If the file does not exist, is not valid YAML, repeats a key, or does not contain a mapping.
    """
    try:
        text = read_text(path, yaml_values.MAX_BYTES)
    except FileNotFoundError:
        raise InputError(f"no config at {path}", _suggest_configs()) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "give a YAML file with --config FILE") from error
    try:
        values, lines = yaml_values.parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f"{path}:{mark.line + 1}" if mark else path
        # The mark may be behind the last line.
        line = "".join(text.splitlines()[mark.line :][:1]) if mark else ""
        has_tab = line.lstrip(" ").startswith("\t")
        why = "the line is indented with a tab, expected spaces" if has_tab else error.problem
        raise InputError(
            f"{position}: this is not valid YAML: {why}", "fix the line: check colons, quotes and indents"
        ) from error
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: expected sections such as data: and training:, received {_kind(values)}",
            "see configs/taxi.yaml for the shape of a config",
        )
    return Document(path, values, lines)


def assign(document: Document, assignments: Iterable[str]) -> None:
    """Apply `section.field=value` assignments to a document. Values are parsed as YAML.

    Raises:
      InputError: If an assignment has another form, or if its value is not valid YAML.
    """
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        parts = tuple(dotted.strip().split("."))
        if not equals or not all(parts):
            raise InputError(
                f"--set {assignment}: expected section.field=value", "for example --set training.steps=200"
            )
        try:
            value, _ = yaml_values.parse(text)
        except yaml.MarkedYAMLError as error:
            raise InputError(
                f"--set {assignment}: the value is not valid YAML: {error.problem}",
                "quote it, or give it in a config file",
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


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else repr(value)


def _suggest_configs() -> str:
    examples = sorted(str(path) for path in Path("configs").glob("*.yaml"))
    return (
        f"give one that exists with --config FILE, such as {', '.join(examples)}"
        if examples
        else "give a file with --config FILE"
    )


KeyPath = Sequence["str | int"]

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a section of keys and values",
    "model_attributes_type": "a section of keys and values",
}


def convert_validation_error(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Convert the errors of pydantic to problems with messages in the style of this project."""
    return [_problem(dict(entry), model) for entry in error.errors(include_url=False)]


def find_misplaced_booleans(document: Document, model: type[BaseModel]) -> list[Problem]:
    """Return a problem for every boolean where a number is expected; pydantic would convert it to 1 or 0."""
    problems = []
    for key, value in _leaves((), document.values):
        if not isinstance(value, bool):
            continue
        types_ = set(_types(functools.reduce(_step, key, model)))
        if types_ & {int, float} and bool not in types_:
            problems.append(Problem(key, f"expected a number, received {str(value).lower()}"))
    return problems


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield key, value
    for part, inner in items or ():
        yield from _leaves((*key, part), inner)


def _types(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all types that it contains."""
    yield annotation
    for argument in typing.get_args(annotation):
        yield from _types(argument)


def refuse(document: Document, problems: Iterable[Problem]) -> None:
    """Raise one error that lists all problems, in the order of their lines.

    Raises:
      InputError: If there are problems.
    """
    lines = [_line(document, problem) for problem in sorted(problems, key=lambda one: document.line(one.key))]
    if not lines:
        return
    remedy = (
        "fix it; docs/reference/config.md describes every field, "
        "and `python runner.py schema` writes a JSON Schema for editors"
    )
    if len(lines) == 1:
        raise InputError(lines[0], remedy)
    raise InputError(f"{document.name} has {len(lines)} errors", remedy.replace("fix it", "fix them"), lines)


def _line(document: Document, problem: Problem) -> str:
    dotted = ".".join(str(part) for part in document.written(problem.key)) or ".".join(map(str, problem.key))
    return (
        f"{document.position(problem.key)}: {dotted}: {problem.message}"
        if dotted
        else f"{document.position(problem.key)}: {problem.message}"
    )


def _problem(entry: Mapping[str, Any], model: type[BaseModel]) -> Problem:
    """Convert an error of pydantic to a problem.

    Args:
      entry: Error, as `ValidationError.errors` returns it.
      model: Class of the whole config, for suggestions.
    """
    kind, key, received = entry["type"], tuple(entry["loc"]), entry["input"]
    context = entry.get("ctx", {})
    if kind == "extra_forbidden":
        return Problem(key, f"unknown key{did_you_mean(key[-1], _keys(model, key[:-1]))}")
    if kind == "missing":
        return Problem(key[:-1], f"{key[-1]!r} is required and missing")
    if kind == "literal_error":
        choices = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
        return Problem(
            key, f"expected one of {', '.join(choices)}, received {_display(received)}{_near(received, choices)}"
        )
    if kind == "union_tag_invalid":
        choices = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
        return Problem(key, f"unknown operation {context['tag']!r}{did_you_mean(context['tag'], choices)}")
    if kind == "union_tag_not_found":
        return Problem(
            key, f"expected an operation such as z_score or {{vocab: {{size: 1000}}}}, received {_display(received)}"
        )
    if kind == "value_error":
        return Problem(key, str(context["error"]))
    if kind in _EXPECTED:
        return Problem(key, f"expected {_EXPECTED[kind]}, received {_display(received)}")
    message = str(entry["msg"]).replace("Input should be", "expected a value").replace("Value should have", "expected")
    message = message.replace("Dictionary should have", "expected").replace("Tuple should have", "expected")
    message = message.replace("String should match", "expected a text that matches").replace(
        "String should have", "expected"
    )
    return Problem(key, f"{message[0].lower()}{message[1:]}, received {_display(received)}")


def _keys(model: type[BaseModel], key: KeyPath) -> list[str]:
    """Return the keys of the section at `key`."""
    inner: Any = model
    for part in key:
        inner = _step(inner, part)
    return [field.alias or name for section in _sections(inner) for name, field in section.model_fields.items()]


def _step(annotation: Any, part: str | int) -> Any:
    """Return the type of a field of a section, a member of a mapping or list, or a tagged member of a union."""
    for section in _sections(annotation):
        for name, value in section.model_fields.items():
            if part in (name, value.alias):
                return value.annotation
        tag = section.model_fields.get("op")
        if tag is not None and tag.default == part:
            return section
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (dict, tuple, list) and arguments:
        return arguments[-1] if arguments[-1] is not Ellipsis else arguments[0]
    if typing.get_origin(annotation) is typing.Annotated:
        return _step(arguments[0], part)
    return annotation


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """Return the section classes that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return [section for argument in typing.get_args(annotation) for section in _sections(argument)]
    return []


def _near(received: Any, choices: Sequence[str]) -> str:
    hint = did_you_mean(received, choices)
    return hint if "did you mean" in hint else ""


def _display(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
