"""The base class of every section of the config: immutable, and without unknown keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Task = Literal["binary", "multiclass", "regression", "retrieval"]
"""What the model predicts: one of two classes, one of several classes, a number, or the items that fit a query."""

Loss = Literal["quantile", "huber", "poisson", "tweedie", "focal"]
"""What a training minimizes instead of the task's own loss, crossentropy or squared error."""

LOSSES: dict[Task, tuple[Loss, ...]] = {
    "binary": ("focal",),
    "multiclass": ("focal",),
    "regression": ("quantile", "huber", "poisson", "tweedie"),
    "retrieval": (),
}
"""Task → the losses that it can have."""


@dataclass(frozen=True)
class Problem:
    """A mistake in a config.

    Attributes:
      key: Path of the field, such as `("training", "steps")`.
      message: What was expected and received, and the remedy.
    """

    key: tuple[str | int, ...]
    message: str


class Section(BaseModel):
    """A part of the config that one component owns; its JSON is that component's cache key."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    def check_against(self, config: Any) -> Iterable[Problem]:
        """Return the mistakes in the section that depend on other sections.

        Args:
          config: The whole config, a pipeline.authoring.config.Config, in which this is a section at the top.
        """
        return ()
