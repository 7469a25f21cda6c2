"""The base class of config sections, which are immutable and reject unknown keys, and types of their fields."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
)
from pydantic_core import core_schema

from components.base.names import did_you_mean
from components.base.registry import Registry

Task = Literal["binary", "multiclass", "multilabel", "regression", "survival", "retrieval", "anomaly"]
"""Task of the model: predict one of two classes, one of several classes, any number of several classes, a number, the
time until an event, the items that fit a query, or how unusual a row is."""

Loss = Literal["quantile", "huber", "poisson", "tweedie", "focal", "listwise"]
"""Losses that a training can minimize instead of the default loss of its task, crossentropy or squared error."""

LOSSES: dict[Task, tuple[Loss, ...]] = {
    "binary": ("focal", "listwise"),
    "multiclass": ("focal",),
    "multilabel": (),
    "regression": ("quantile", "huber", "poisson", "tweedie"),
    "survival": (),
    "retrieval": (),
    "anomaly": (),
}
"""Losses that can replace the default loss, by task."""


@dataclass(frozen=True)
class Problem:
    """A mistake in a config.

    Attributes:
      key: Path of the field, such as `("training", "steps")`.
      message: Text that says what was expected and received, and gives a remedy.
    """

    key: tuple[str | int, ...]
    message: str


class Section(BaseModel):
    """A part of the config that belongs to one component. Its JSON is part of the component's cache key."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def check_against(self, config: Any) -> Iterable[Problem]:
        """Return the mistakes in the section that depend on other sections.

        Args:
          config: The whole config, a pipeline.authoring.config.Config. This section must be at its top level.
        """
        return ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # With use_attribute_docstrings, pydantic would read the docstrings of the fields from the source files whenever
        # the classes are imported. That would be 40 % of the time in which a config is loaded.
        section = handler(schema)
        properties = handler.resolve_ref_schema(section)["properties"]
        for name, field in cls.model_fields.items():
            owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
            if text := _read_docstrings(owner.__module__).get((owner.__name__, name)):
                properties[field.alias or name]["description"] = text
        return section


def check_fields_of_kind(
    section: Section, kinds: Mapping[str, Sequence[str]], chosen: str | None, option: str = "kind"
) -> None:
    """Raise a ValueError if a field is set that has no effect with the chosen kind.

    A field with its default value is accepted, because a recorded plan contains all fields.

    Args:
      section: The section that contains the fields.
      kinds: Field → the kinds in which it has an effect. Fields that are not listed have an effect in all kinds.
      chosen: The chosen kind; None if none is chosen.
      option: Name of the field that chooses, for the message.
    """
    for name in (name for name in kinds if name in section.model_fields_set and chosen not in kinds[name]):
        if getattr(section, name) != type(section).model_fields[name].get_default(call_default_factory=True):
            *others, last = kinds[name]
            expected = f"{', '.join(others)} or {last}" if others else last
            raise ValueError(f"{name}: expected {option} {expected}, received {chosen or 'none'}; remove {name}")


@functools.cache
def _read_docstrings(module: str) -> Mapping[tuple[str, str], str]:
    """Return (class, field) → docstring, for the classes of a module; empty for a module without a source file."""
    tree = ast.parse("".join(linecache.getlines(sys.modules[module].__file__ or "")))
    return {
        (section.name, ast.unparse(field.target)): inspect.cleandoc(text.value.value)
        for section in tree.body
        if isinstance(section, ast.ClassDef)
        for field, text in itertools.pairwise(section.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def as_tuple(value: Any) -> Any:
    """Convert a text to a tuple with one element."""
    if value == "" or (isinstance(value, (list, tuple)) and "" in value):
        raise ValueError("expected a text, received an empty one")
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...])]
"""A text, or a list of texts."""


@dataclass(frozen=True)
class OrAddedName:
    """Annotation of a Literal of built-in names, which also accepts the names that installed packages add.

    Attributes:
      registry: Registry of the names.
    """

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        built_in = get_args(source)

        def validate(value: Any, validate_built_in: ValidatorFunctionWrapHandler) -> Any:
            if not isinstance(value, str) or value in built_in or not self.registry.added:
                return validate_built_in(value)
            if value not in self.registry.added:
                raise ValueError(f"unknown name {value!r}{did_you_mean(value, (*built_in, *self.registry.added))}")
            return value

        # The literal does not list the names of installed packages; it would serialize them with a warning.
        serialization = core_schema.simple_ser_schema("any")
        return core_schema.no_info_wrap_validator_function(validate, handler(source), serialization=serialization)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        built_in = handler(schema)
        return {**built_in, "enum": [*built_in["enum"], *self.registry.added]}
