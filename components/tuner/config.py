"""The `tune` section: the fields of `training` and `model` that are tuned, and the values to try."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveInt, Tag, model_validator

from components.base.config_section import Section
from components.models.config import WITHOUT_NETWORK, Kind, has_effect
from components.trainer.config import BatchSize

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class Values(Section):
    """The values of a field: exactly one of the keys is set."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Values:
        keys = list(type(self).model_fields)
        present = [key for key in keys if getattr(self, key) is not None]
        if len(present) != 1:
            expected = keys[0] if len(keys) == 1 else f"one of {', '.join(keys)}"
            raise ValueError(f"expected {expected}, received {' and '.join(present) or 'nothing'}")
        if self.sampling != "choice" and not self.candidates[0] < self.candidates[1]:
            raise ValueError(f"{self.sampling}: expected [minimum, maximum], received {list(self.candidates)}")
        return self

    @property
    def sampling(self) -> str:
        """The key that is set: choice, or the distribution over a range: linear, log or int."""
        return next(key for key in type(self).model_fields if getattr(self, key) is not None)

    @property
    def candidates(self) -> tuple[Any, ...]:
        """The values to choose from, or the minimum and the maximum of a range."""
        return tuple(getattr(self, self.sampling))


class Numbers(Values):
    """Numbers to try."""

    choice: tuple[_Number, ...] | None = Field(default=None, min_length=1)
    """A list of values."""
    linear: tuple[_Number, _Number] | None = None
    """[minimum, maximum]: uniformly distributed numbers."""
    log: tuple[_Positive, _Positive] | None = None
    """[minimum, maximum]: log-uniformly distributed numbers."""


class WholeNumbers(Values):
    """Whole numbers to try."""

    choice: tuple[PositiveInt, ...] | None = Field(default=None, min_length=1)
    """A list of values."""
    int: tuple[PositiveInt, PositiveInt] | None = None
    """[minimum, maximum]: uniformly distributed whole numbers."""


class BatchSizes(Values):
    """Batch sizes to try."""

    choice: tuple[BatchSize, ...] | None = Field(default=None, min_length=1)
    """A list of values."""


class HiddenLayers(Values):
    """Hidden layers to try."""

    choice: tuple[tuple[PositiveInt, ...], ...] | None = Field(default=None, min_length=1)
    """A list of values, each a list of units such as [128, 64]."""


class Kinds(Values):
    """Kinds of models to try."""

    choice: tuple[Kind, ...] | None = Field(default=None, min_length=1)
    """A list of values."""


_Steps = Annotated[
    Annotated[PositiveInt, Tag("number")] | Annotated[WholeNumbers, Tag("values")],
    Discriminator(lambda value: "values" if isinstance(value, (dict, WholeNumbers)) else "number"),
]


class HalvingConfig(Section):
    """Asynchronous successive halving: trials train in rungs, and only the best trials of a rung continue (Li et al.
    2020, A System for Massively Parallel Hyperparameter Tuning). The learning rate follows the schedule of a whole
    trial.
    """

    factor: int = Field(default=3, ge=2, le=100)
    """One of this number of trials continues after a rung, with this factor of steps."""
    min_steps: PositiveInt | None = None
    """Steps of the first rung, which all trials train for. By default, the steps of a trial divided by the square of
    `factor`, so that there are three rungs."""

    def list_rungs(self, steps: int) -> list[int]:
        """Return the numbers of steps at which trials are compared, ascending; the last is `steps`.

        The last rung may have more than `factor` times the steps of the previous rung, but less than the square.

        Args:
          steps: Number of steps of a whole trial.
        """
        rungs: list[int] = []
        rung = self.min_steps or max(1, steps // self.factor**2)
        while rung * self.factor <= steps:
            rungs.append(rung)
            rung *= self.factor
        return [*rungs, steps]


class TuneConfig(Section):
    """Trials before the training: every trial trains with other values, and the Trainer uses the best values."""

    learning_rate: Numbers | None = None
    """Values for `training.learning_rate`."""
    weight_decay: Numbers | None = None
    """Values for `training.weight_decay`."""
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
    members: WholeNumbers | None = None
    """Values for `model.members`."""
    trees: WholeNumbers | None = None
    """Values for `model.trees`."""
    depth: WholeNumbers | None = None
    """Values for `model.depth`."""
    shrinkage: Numbers | None = None
    """Values for `model.shrinkage`."""
    trials: PositiveInt = 10
    """Maximum number of trials. Fewer trials run if the fields have fewer combinations of values."""
    steps: _Steps | None = None
    """A number: optimizer steps of every trial and of its learning rate's schedule. By default, `training.steps`. Or
    values for `training.steps`, which the Trainer then uses as well."""
    parallel: PositiveInt | None = None
    """Number of trials at a time, each in a process with its share of the cores. By default, the number of cores or
    GPUs, reduced to what the memory allows. With `training.where`, each trial is a job with one task, and the default
    is 4."""
    search: Literal["random", "bayesian"] = "random"
    """How the next values are chosen. random: at random; bayesian: by a model of the losses so far (Gaussian process,
    upper confidence bound), after three random trials per field."""
    halving: HalvingConfig | None = None
    """Stop most trials early. By default, every trial trains for all of its steps."""
    seed: PositiveInt = 1
    """Seed of the search. Trials use `training.seed` for their weights and for shuffling."""

    @model_validator(mode="after")
    def _not_empty(self) -> TuneConfig:
        if not self.values():
            raise ValueError(f"expected values for at least one of {', '.join(FIELDS)}, received none")
        return self

    @model_validator(mode="after")
    def _check_halving(self) -> TuneConfig:
        if self.halving is None:
            return self
        if self.search != "random":
            raise ValueError(
                f"halving: expected search random, received {self.search}, whose model would compare losses after "
                "different numbers of steps; remove one of them"
            )
        if isinstance(self.steps, WholeNumbers):
            raise ValueError("halving: expected a number for steps, received values to try; remove one of them")
        return self

    def values(self) -> dict[str, Values]:
        """Return tuned field → its values; the kind, on which other fields depend, comes first."""
        return {name: values for name in FIELDS if isinstance(values := getattr(self, name), Values)}

    def kinds(self, field: str, kind: Kind) -> list[Kind]:
        """Return the kinds of models for which a field has an effect.

        Args:
          field: One of FIELDS.
          kind: Kind of the config, if kinds are not tuned.
        """
        tried = self.kind.candidates if self.kind else (kind,)
        return [
            kind
            for kind in tried
            if (kind not in WITHOUT_NETWORK if field in _NETWORK_FIELDS else has_effect(field, kind))
        ]

    def candidates(self) -> Iterator[tuple[tuple[str | int, ...], str, Any]]:
        """Yield (key in this section, field, value) for values to choose from, both bounds of a range, and the steps.

        A field's valid values are an interval, so a range is valid if its bounds are valid.
        """
        for name, values in self.values().items():
            for index, value in enumerate(values.candidates):
                yield (name, values.sampling, index), name, value
        if isinstance(self.steps, int):
            yield ("steps",), "steps", self.steps


_NETWORK_FIELDS = ("learning_rate", "weight_decay", "steps", "batch_size")
FIELDS = ("kind", *_NETWORK_FIELDS, *("hidden", "embedding", "dropout", "members"), *("trees", "depth", "shrinkage"))
"""The fields that can be tuned."""
