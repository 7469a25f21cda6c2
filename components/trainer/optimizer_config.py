"""The sections `training.optimizer` and `training.schedule`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from components.base.config_section import Section, check_fields_of_kind

_FIELDS: Mapping[str, tuple[str, ...]] = {"momentum": ("sgd",), "nesterov": ("sgd",), "l1": ("ftrl",), "l2": ("ftrl",)}
"""Field of OptimizerConfig → the kinds that have it."""
_SCHEDULE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "end": ("cosine", "polynomial"),
    "power": ("polynomial",),
    "factor": ("exponential",),
    "every_steps": ("exponential",),
    "shares": ("piecewise",),
}
"""Field of ScheduleConfig → the kinds that have it."""


class OptimizerConfig(Section):
    """How weights are updated from gradients. `learning_rate`, `schedule` and `weight_decay` apply to all kinds."""

    kind: Literal["adam", "adamw", "sgd", "adagrad", "ftrl", "lion"] = "adam"
    """adam: Kingma & Ba 2015; adamw: the same, and requires `weight_decay`; sgd: gradient descent with momentum;
    adagrad: Duchi et al. 2011; ftrl: McMahan et al. 2013, only for the kind linear, because it forgets initial weights;
    lion: Chen et al. 2023, with a learning rate of about a tenth of Adam's. A step of adam updates only the rows of a
    table of IDs that its batch contains; the other kinds may update all rows."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """sgd: share of the previous update in the next update."""
    nesterov: bool = False
    """sgd: use the gradient that the momentum leads to (Nesterov 1983)."""
    l1: float = Field(default=0.0, ge=0)
    """ftrl: penalty of the absolute weights, which sets small weights to 0."""
    l2: float = Field(default=0.0, ge=0)
    """ftrl: penalty of the squared weights."""
    clip_norm: PositiveFloat | None = None
    """Maximum norm of all gradients of a step together; greater gradients are scaled down."""
    clip_value: PositiveFloat | None = None
    """Maximum absolute value of a gradient."""
    accumulate: PositiveInt = 1
    """Number of parts of a batch whose gradients are added up before an update. Activations of one part at a time need
    memory. Batch normalization uses the moments of a part."""

    @property
    def copies(self) -> int:
        """Number of floats that training stores per weight: the weight, and what the optimizer keeps."""
        if self.kind == "sgd":
            return 1 + (self.momentum > 0)
        return 2 if self.kind in ("adagrad", "lion") else 3

    @model_validator(mode="after")
    def _check_fields(self) -> OptimizerConfig:
        check_fields_of_kind(self, _FIELDS, self.kind)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov: expected a momentum above 0, received 0")
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("expected clip_norm or clip_value, received both; remove one")
        return self


class ScheduleConfig(Section):
    """How the learning rate changes with the steps."""

    kind: Literal["cosine", "constant", "exponential", "polynomial", "piecewise"] = "cosine"
    """cosine: half a wave from `learning_rate` to `end` at the last step (Loshchilov & Hutter 2017, SGDR); polynomial:
    a polynomial between the same ends; exponential: multiplied by `factor` in `every_steps`; piecewise: `shares`."""
    warm_up_steps: int = Field(default=0, ge=0)
    """Number of first steps in which the learning rate rises from near 0 to `learning_rate`. The other steps follow
    `kind`, which then begins."""
    end: float = Field(default=0.0, ge=0, le=1)
    """cosine and polynomial: share of `learning_rate` at the last step."""
    power: PositiveFloat = 1.0
    """polynomial: exponent; 1 is a straight line."""
    factor: float = Field(default=0.1, gt=0, lt=1)
    """exponential: the learning rate after `every_steps`, as a share of the rate before."""
    every_steps: PositiveInt | None = None
    """exponential: see `factor`. By default, all steps after the warm-up."""
    shares: dict[PositiveInt, PositiveFloat] = Field(default_factory=dict)
    """piecewise: step → share of `learning_rate` after this step, as in {1000: 0.1, 2000: 0.01}."""

    @model_validator(mode="after")
    def _check_fields(self) -> ScheduleConfig:
        check_fields_of_kind(self, _SCHEDULE_FIELDS, self.kind)
        if self.kind == "piecewise" and not self.shares:
            raise ValueError("piecewise: expected shares, as in {1000: 0.1}, received none")
        early = [step for step in self.shares if step <= self.warm_up_steps]
        if early:
            raise ValueError(f"shares: expected steps after warm_up_steps {self.warm_up_steps}, received {early[0]}")
        return self
