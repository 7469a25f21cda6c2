"""The field `evaluation.decide`: the goal by which the threshold of a binary model is chosen."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from components.base.config_section import Section

_F1 = "f1"


class CostsConfig(Section):
    """The costs of wrong answers, in any unit. A right answer costs nothing."""

    fp: PositiveFloat
    """Cost of the answer 1 for a row with label 0."""
    fn: PositiveFloat
    """Cost of the answer 0 for a row with label 1."""


class DecisionGoal(Section):
    """What a binary model answers in addition to its probability, chosen by exactly one of these goals."""

    f1: bool = False
    """Choose the threshold with the highest F1; `decide: f1` is short for it."""
    precision: float | None = Field(default=None, gt=0, le=1)
    """Smallest precision. Choose the threshold with the highest recall among those that reach it."""
    recall: float | None = Field(default=None, gt=0, le=1)
    """Smallest recall. Choose the threshold with the highest precision among those that reach it."""
    cost: CostsConfig | None = None
    """Choose the threshold with the lowest mean cost."""
    threshold: float | None = Field(default=None, gt=0, lt=1)
    """The threshold itself."""

    @model_validator(mode="after")
    def _has_one_goal(self) -> DecisionGoal:
        chosen = [name for name in type(self).model_fields if getattr(self, name) not in (None, False)]
        if len(chosen) != 1:
            received = " and ".join(chosen) or "none of them"
            raise ValueError(f"expected one of f1, precision, recall, cost or threshold, received {received}")
        return self

    @property
    def needs_rows(self) -> bool:
        """Whether the threshold is chosen on rows that the training holds out."""
        return self.threshold is None

    def __str__(self) -> str:
        if self.precision is not None:
            return f"highest recall at a precision of at least {self.precision:g}"
        if self.recall is not None:
            return f"highest precision at a recall of at least {self.recall:g}"
        if self.cost is not None:
            return f"lowest mean cost with fp {self.cost.fp:g} and fn {self.cost.fn:g}"
        return "highest f1" if self.threshold is None else f"threshold {self.threshold:g}"


def _expand(value: Any) -> Any:
    if value == _F1:
        return {_F1: True}
    if isinstance(value, str):
        raise ValueError(
            f"expected f1, {{precision: 0.9}}, {{recall: 0.8}}, {{cost: {{fp: 1, fn: 5}}}} or {{threshold: 0.3}}, "
            f"received {value!r}"
        )
    return value


Decide = Annotated[DecisionGoal, BeforeValidator(_expand, json_schema_input_type=Literal["f1"] | DecisionGoal)]
"""`f1`, or a section with one goal."""
