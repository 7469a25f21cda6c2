"""The `tune` section: which fields of `training` and `model` are tried with which values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from components.models.config import Kind
from components.section import Section

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class Values(Section):
    """What a field may be: one way of saying it has to be given, and no second one."""

    @model_validator(mode="after")
    def _one_way(self) -> Values:
        ways = list(type(self).model_fields)
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) != 1:
            expected = ways[0] if len(ways) == 1 else f"one of {', '.join(ways)}"
            raise ValueError(f"expected {expected}, received {' and '.join(given) or 'nothing'}")
        if self.way != "choice" and not self.told[0] < self.told[1]:
            raise ValueError(f"{self.way}: expected [least, greatest], received {list(self.told)}")
        return self

    @property
    def way(self) -> str:
        """choice, or how a range is drawn from: linear, log or int."""
        return next(way for way in type(self).model_fields if getattr(self, way) is not None)

    @property
    def told(self) -> tuple[Any, ...]:
        """The values to choose from, or the least and the greatest of a range."""
        return tuple(getattr(self, self.way))


class Numbers(Values):
    """Numbers to try."""

    choice: tuple[_Number, ...] | None = Field(default=None, min_length=1)
    """These."""
    linear: tuple[_Number, _Number] | None = None
    """[least, greatest]: any number between them, each as likely."""
    log: tuple[_Positive, _Positive] | None = None
    """[least, greatest]: any number between them, each order of magnitude as likely."""


class WholeNumbers(Values):
    """Whole numbers to try."""

    choice: tuple[PositiveInt, ...] | None = Field(default=None, min_length=1)
    """These."""
    int: tuple[PositiveInt, PositiveInt] | None = None
    """[least, greatest]: any whole number from the one to the other, each as likely."""


class BatchSizes(Values):
    """Batch sizes to try."""

    choice: tuple[PositiveInt, ...] | None = Field(default=None, min_length=1)
    """These."""


class HiddenLayers(Values):
    """Hidden layers to try."""

    choice: tuple[tuple[PositiveInt, ...], ...] | None = Field(default=None, min_length=1)
    """These, each a list of units such as [128, 64]."""


class Kinds(Values):
    """Kinds of networks to try."""

    choice: tuple[Kind, ...] | None = Field(default=None, min_length=1)
    """These."""


class TuneConfig(Section):
    """Trials before the training: each trains with other values, and the best of them are the Trainer's."""

    learning_rate: Numbers | None = None
    """Values for `training.learning_rate`."""
    batch_size: BatchSizes | None = None
    """Values for `training.batch_size`."""
    kind: Kinds | None = None
    """Values for `model.kind`."""
    hidden: HiddenLayers | None = None
    """Values for `model.hidden`."""
    embedding: WholeNumbers | None = None
    """Values for `model.embedding`."""
    dropout: Numbers | None = None
    """Values for `model.dropout`."""
    trials: PositiveInt = 10
    """Trials in all; fewer, if there are no more combinations."""
    steps: PositiveInt | None = None
    """Optimizer steps of a trial, `training.steps` if it is not given. The learning rate's schedule ends with them."""
    search: Literal["random", "bayesian"] = "random"
    """How the next values are found. random: drawn; bayesian: by a model of the losses so far, after as many random
    trials as three for each field (Gaussian process, upper confidence bound)."""
    seed: PositiveInt = 1
    """Seed of the values that are tried; every trial has `training.seed` for its weights and shuffling."""

    @model_validator(mode="after")
    def _something(self) -> TuneConfig:
        if not self.values():
            raise ValueError(f"expected values for at least one of {', '.join(FIELDS)}, received none")
        return self

    def values(self) -> dict[str, Values]:
        """Field → what it may be, of those that are tuned."""
        return {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}

    def candidates(self) -> Iterator[tuple[tuple[str | int, ...], str, Any]]:
        """(place in this section, field, value) of every value to choose from, and of both ends of every range.

        What a field refuses lies below a bound or above one, so a range is sound if its ends are.
        """
        for name, values in self.values().items():
            for index, value in enumerate(values.told):
                yield (name, values.way, index), name, value


FIELDS = ("learning_rate", "batch_size", "kind", "hidden", "embedding", "dropout")
"""What can be tuned."""
