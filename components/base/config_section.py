"""The base class of config sections, which are immutable and reject unknown keys, and types of their fields."""

from __future__ import annotations

from collections.abc import Iterable
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

Task = Literal["binary", "multiclass", "regression", "retrieval"]
"""Task of the model: predict one of two classes, one of several classes, a number, or the items that fit a query."""

Loss = Literal["quantile", "huber", "poisson", "tweedie", "focal"]
"""Losses that a training can minimize instead of the default loss of its task, crossentropy or squared error."""

LOSSES: dict[Task, tuple[Loss, ...]] = {
    "binary": ("focal",),
    "multiclass": ("focal",),
    "regression": ("quantile", "huber", "poisson", "tweedie"),
    "retrieval": (),
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

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    def check_against(self, config: Any) -> Iterable[Problem]:
        """Return the mistakes in the section that depend on other sections.

        Args:
          config: The whole config, a pipeline.authoring.config.Config. This section must be at its top level.
        """
        return ()


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
