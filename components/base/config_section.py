"""The base class of config sections, which are immutable and reject unknown keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

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
