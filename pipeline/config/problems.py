"""Everything that is wrong with a config, told at once: place, field, expected, received, did you mean."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from components.errors import InputError
from components.names import did_you_mean
from pipeline.config.document import Document

Key = Sequence["str | int"]

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


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the field it is about, and what was expected and received there."""

    key: tuple[str | int, ...]
    message: str


def of_validation(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """The problems that pydantic found, in the words of this project."""
    return [_problem(dict(entry), model) for entry in error.errors(include_url=False)]


def refuse(document: Document, problems: Iterable[Problem]) -> None:
    """Raises one error that tells all problems; does nothing if there are none.

    Raises:
      InputError: there are problems.
    """
    lines = [_line(document, problem) for problem in sorted(problems, key=lambda one: document.line(one.key))]
    if not lines:
        return
    remedy = "mend it; docs/config.md has every field, and `python runner.py schema` writes a JSON Schema for editors"
    if len(lines) == 1:
        raise InputError(lines[0], remedy)
    raise InputError(f"{document.name} has {len(lines)} errors", remedy.replace("mend it", "mend them"), lines)


def _line(document: Document, problem: Problem) -> str:
    dotted = ".".join(str(part) for part in document.written(problem.key)) or ".".join(map(str, problem.key))
    return (
        f"{document.place(problem.key)}: {dotted}: {problem.message}"
        if dotted
        else f"{document.place(problem.key)}: {problem.message}"
    )


def _problem(entry: Mapping[str, Any], model: type[BaseModel]) -> Problem:
    kind, key, received = entry["type"], tuple(entry["loc"]), entry["input"]
    context = entry.get("ctx", {})
    if kind == "extra_forbidden":
        return Problem(key, f"unknown key{did_you_mean(key[-1], _keys(model, key[:-1]))}")
    if kind == "missing":
        return Problem(key[:-1], f"{key[-1]!r} has to be given, and is missing")
    if kind == "literal_error":
        choices = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
        return Problem(
            key, f"expected one of {', '.join(choices)}, received {_shown(received)}{_near(received, choices)}"
        )
    if kind == "union_tag_invalid":
        choices = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
        return Problem(key, f"unknown operation {context['tag']!r}{did_you_mean(context['tag'], choices)}")
    if kind == "union_tag_not_found":
        return Problem(
            key, f"expected an operation such as z_score or {{vocab: {{size: 1000}}}}, received {_shown(received)}"
        )
    if kind == "value_error":
        return Problem(key, str(context["error"]))
    if kind in _EXPECTED:
        return Problem(key, f"expected {_EXPECTED[kind]}, received {_shown(received)}")
    message = str(entry["msg"]).replace("Input should be", "expected a value").replace("Value should have", "expected")
    message = message.replace("Dictionary should have", "expected").replace("Tuple should have", "expected")
    message = message.replace("String should match", "expected a text that matches").replace(
        "String should have", "expected"
    )
    return Problem(key, f"{message[0].lower()}{message[1:]}, received {_shown(received)}")


def _keys(model: type[BaseModel], key: Key) -> list[str]:
    """The keys that the section at `key` knows."""
    inner: Any = model
    for part in key:
        inner = _step(inner, part)
    return [field.alias or name for section in _sections(inner) for name, field in section.model_fields.items()]


def _step(annotation: Any, part: str | int) -> Any:
    """The type one key further in: a section's field, a mapping's or a list's member, or a union's tagged member."""
    for section in _sections(annotation):
        for name, field in section.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
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
    """The section classes that an annotation can hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return [section for argument in typing.get_args(annotation) for section in _sections(argument)]
    return []


def _near(received: Any, choices: Sequence[str]) -> str:
    hint = did_you_mean(received, choices)
    return hint if "did you mean" in hint else ""


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
