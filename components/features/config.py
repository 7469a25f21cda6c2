"""The `features` section: which operations transform each column."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from components.base.config_section import Section
from components.base.names import PreprocessingFn, did_you_mean
from components.base.registry import Registry
from components.features import feature_names
from components.features.base_op import Dtype, Embedded, Op
from components.features.date_ops import DatePart, DateParts
from components.features.image_ops import Image
from components.features.sequence_ops import EventSequence, OfHistory, TimeGaps
from components.features.text_ops import MultiHot, Split, Text


class ZScore(Op):
    """(x - mean) / standard deviation, over the training split. A missing value becomes the mean, 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["z_score"] = "z_score"


class Log(Op):
    """sign(x) · log(1 + |x|), then z_score: for heavy tails. A missing value becomes the mean, 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["log"] = "log"


class MinMax(Op):
    """(x - least) / (greatest - least), over the training split, within [0, 1]. A missing value becomes 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["min_max"] = "min_max"


class Clip(Op):
    """The value, or the bound that it lies beyond, then z_score. A missing value becomes the mean, 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["clip"] = "clip"
    low: float | None = None
    """The lower bound, if there is one."""
    high: float | None = None
    """The upper bound, if there is one."""

    @model_validator(mode="after")
    def _bounds(self) -> Clip:
        if self.low is None and self.high is None:
            raise ValueError("expected low, high or both, received neither")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"expected low below high, received {self.low:g} and {self.high:g}")
        return self


class PassThrough(Op):
    """The number as it is. A missing value becomes 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["pass_through"] = "pass_through"


class Missing(Op):
    """1 where the value is missing, else 0: in addition to an operation that replaces missing values."""

    takes = frozenset[Dtype]({"int", "float", "bytes"})
    op: Literal["missing"] = "missing"


class PiecewiseLinear(Op):
    """A number for each bin: 0 below it, 1 above it, linear within it (Gorishniy et al. 2022, On Embeddings for
    Numerical Features in Tabular Deep Learning).

    The edges are quantiles of the distinct values, so that a long tail gets bins even if one value is very frequent.
    A missing value is 0 in all of them, as the minimum is.

    Transformed examples hold two numbers: the bin, and the position inside it. Training and the exported model expand
    them.
    """

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["piecewise_linear"] = "piecewise_linear"
    bins: int = Field(default=16, ge=2, le=1000)
    """Number of bins; a column with fewer distinct values fills fewer."""


class Cyclical(Op):
    """sin and cos of 2π · x / period, for periodic values: hours of a day, degrees. A missing value becomes 0, 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["cyclical"] = "cyclical"
    period: float = Field(gt=0, allow_inf_nan=False)
    """The period, in the unit of the values, such as 24."""


class Bucketize(Embedded):
    """The quantile bucket that the value falls in, as an id to embed. A missing value has a bucket of its own."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["bucketize"] = "bucketize"
    buckets: int = Field(default=10, ge=2, le=10_000)
    """Number of quantile buckets; a column with fewer distinct values gets fewer."""

    @property
    def rows(self) -> int:
        """A row per bucket, and missing."""
        return self.buckets + 1


class Vocab(Embedded):
    """The value's rank in a vocabulary of the training split, as an id to embed. Missing has an id of its own."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["vocab"] = "vocab"
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """Size of the vocabulary: the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Values in fewer training rows than this are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Ids over which values outside the vocabulary are hashed."""

    @property
    def rows(self) -> int:
        """A row per bucket of unknown values, and missing."""
        return self.oov_buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.size


class Hashed(Embedded):
    """An operation whose ids are buckets of a hash."""

    buckets: int = Field(ge=2, le=1_000_000_000)
    """Number of ids; several values may share one. Transform reports how many do."""
    min_frequency: int = Field(default=1, ge=1)
    """A bucket with the values of fewer training rows than this has no id of its own: all such buckets share one,
    also those without any training row. The table then has rows for the other buckets only."""

    @property
    def rows(self) -> int:
        """A row per id, and missing; of buckets with a vocabulary of their own, one for the rare ones, and missing."""
        return 2 if self.min_frequency > 1 else self.buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.buckets if self.min_frequency > 1 else 0


class Hash(Hashed):
    """A hash of the value, as an id to embed: for columns with very many values. Missing has an id of its own."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["hash"] = "hash"


class Cross(Hashed):
    """A hash of the values of several columns, as an id to embed.

    If an example has several values of a column, the first is used. If any of the columns is missing, it has an id of
    its own.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["cross"] = "cross"
    columns: tuple[str, ...]
    """The columns; they do not have to be features themselves."""

    @model_validator(mode="after")
    def _check_columns(self) -> Cross:
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"expected two columns or more, each once, received {', '.join(self.columns) or 'none'}")
        return self


OPS: Registry[type[Op]] = Registry(
    "operations",
    {
        op.model_fields["op"].default: op
        for op in (
            ZScore, Log, MinMax, Clip, PassThrough, Missing, PiecewiseLinear, Cyclical, Bucketize, Vocab, Hash,
            MultiHot, Split, Text, EventSequence, TimeGaps, DatePart, DateParts, Image,
        )
    },
    "a subclass of components.features.base_op.Op",
    lambda entry: isinstance(entry, type) and issubclass(entry, Op),
)  # fmt: skip
"""The operations on one column, by name; installed packages add operations to the group `tfx_pipeline.operations`."""


def _to_mapping(value: Any) -> Any:
    """Expand `vocab` and `{vocab: {size: 10}}` to `{op: vocab, size: 10}`, and a list of date_parts to its parts."""
    if isinstance(value, str):
        return {"op": value}
    if isinstance(value, dict) and "op" not in value and len(value) == 1:
        ((name, options),) = value.items()
        if options is None or isinstance(options, dict):
            return {**(options or {}), "op": name}
        if name == "date_parts" and isinstance(options, (list, tuple)):
            return {"op": name, "parts": options}
    if not isinstance(value, (dict, Op)):
        raise ValueError(f"expected an operation such as z_score or {{vocab: {{size: 1000}}}}, received {value!r}")
    return value


def _validate_op(value: Any, validate_built_in: ValidatorFunctionWrapHandler) -> Any:
    """Validate an operation; an operation that is not built in by the class that an installed package adds."""
    settings = _to_mapping(value)
    name = settings.op if isinstance(settings, Op) else settings.get("op")
    if not isinstance(name, str) or name in OPS.built_in:
        return validate_built_in(settings)
    if name not in OPS:
        raise ValueError(f"unknown operation {name!r}{did_you_mean(name, OPS)}")
    return OPS[name].model_validate(settings)


def _ops(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


AnyOp = Annotated[
    Annotated[
        Union[  # noqa: UP007 - a value, not a hint
            ZScore,
            Log,
            MinMax,
            Clip,
            PassThrough,
            Missing,
            PiecewiseLinear,
            Cyclical,
            Bucketize,
            Vocab,
            Hash,
            MultiHot,
            Split,
            Text,
            EventSequence,
            TimeGaps,
            DatePart,
            DateParts,
            Image,
        ],
        Discriminator("op"),
    ],
    WrapValidator(_validate_op),
    # The union does not list the classes of installed packages; it would serialize them with a warning.
    SerializeAsAny(),
]


def _cross_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits and _, received {name!r}")
    return name


OfKind = TypeVar("OfKind", bound=Op)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Feature:
    """One transformed feature that a config declares.

    Attributes:
      name: its name.
      op: the operation.
      columns: the raw columns that it is computed from; several for a cross, and for `time_gaps` with `until`.
      key: its position in the `features` section, for error messages.
      shares: the feature whose ids and embeddings it has, if they are not its own.
      along: the feature of the sequence whose events its ids belong to.
    """

    name: str
    op: Op
    columns: tuple[str, ...]
    key: tuple[str | int, ...]
    shares: str | None = None
    along: str | None = None

    @property
    def vocabulary(self) -> str:
        """The name of its vocabulary, if it has one."""
        return self.shares or self.name


class FeaturesConfig(Section):
    """One operation or several for each column that is a feature."""

    columns: dict[str, Annotated[tuple[AnyOp, ...], BeforeValidator(_ops)]] = Field(default_factory=dict)
    """Column → operation, `{operation: options}`, or a list of these. A column that is not named is no feature."""
    crosses: dict[Annotated[str, AfterValidator(_cross_name)], Cross] = Field(default_factory=dict)
    """Name → columns that are combined, such as `{address: {columns: [city, street], buckets: 1000}}`. If an example
    has several values of a column, the first is used; if any of the columns is missing, it has an id of its own."""
    preprocessing_fn: PreprocessingFn | None = None
    """Your own preprocessing_fn, with stock TFX's interface, instead of `columns` and `crosses`:
    package.module.function, or a file such as path/to/module.py."""

    @model_validator(mode="after")
    def _one_of_both(self) -> FeaturesConfig:
        if bool(self.columns or self.crosses) == bool(self.preprocessing_fn):
            raise ValueError(
                "expected either columns (an operation per feature) or preprocessing_fn, received "
                + ("both" if self.preprocessing_fn else "neither")
            )
        return self

    @model_validator(mode="after")
    def _check_histories(self) -> FeaturesConfig:
        for column, ops in self.columns.items():
            for op in ops:
                if isinstance(op, EventSequence) and op.of is not None and self._op(op.of, Vocab, Hash) is None:
                    raise ValueError(
                        f"columns.{column}.sequence.of: expected a column with vocab or hash, received {op.of!r}"
                    )
                if isinstance(op, OfHistory) and op.along is not None:
                    lead = self._op(op.along, EventSequence)
                    if lead is None or op.along == column:
                        raise ValueError(
                            f"columns.{column}.{op.op}.along: expected another column with a sequence, "
                            f"received {op.along!r}"
                        )
                    if lead.max_values != op.max_values or lead.along is not None:
                        raise ValueError(
                            f"columns.{column}.{op.op}.along: expected a sequence of the same max_values without along "
                            f"itself, received {op.along!r}"
                        )
        return self

    def _op(self, column: str, *kinds: type[OfKind]) -> OfKind | None:
        """Return the first operation of some kinds on a column."""
        return next((op for op in self.columns.get(column, ()) if isinstance(op, kinds)), None)

    @property
    def declared(self) -> tuple[Feature, ...]:
        """The transformed features, in the order of the config."""
        of_columns = (
            self._feature(column, op, ("columns", column, index, written.op))
            for column, ops in self.columns.items()
            for index, written in enumerate(ops)
            for op in written.expanded()
        )
        of_crosses = (
            Feature(feature_names.feature(name, cross.suffix), cross, cross.columns, ("crosses", name))
            for name, cross in self.crosses.items()
        )
        return (*of_columns, *of_crosses)

    def _feature(self, column: str, op: Op, key: tuple[str | int, ...]) -> Feature:
        feature = Feature(feature_names.feature(column, op.suffix), op, (column,), key)
        if isinstance(op, OfHistory) and op.along is not None:
            feature = replace(feature, along=feature_names.feature(op.along, "sequence"))
        if isinstance(op, TimeGaps) and op.until is not None:
            return replace(feature, columns=(column, op.until))
        if isinstance(op, EventSequence) and op.of is not None:
            owner = self._op(op.of, Vocab, Hash)
            of_kind = ("buckets", "min_frequency") if isinstance(owner, Hash) else ("size", "oov_buckets")
            own = ("embedding", "quotient_remainder", "composition", *of_kind)
            shared = op.model_copy(update={name: getattr(owner, name) for name in own})
            return replace(feature, op=shared, shares=feature_names.feature(op.of, owner.suffix if owner else ""))
        return feature

    @property
    def histories(self) -> frozenset[str]:
        """The columns with the events of histories."""
        return frozenset(column for column, ops in self.columns.items() if any(isinstance(op, OfHistory) for op in ops))

    def added_modules(self) -> tuple[str, ...]:
        """Return the modules of the operations that installed packages add, whose code is part of the cache keys."""
        ops = {type(op) for ops in self.columns.values() for op in ops if op.op not in OPS.built_in}
        return tuple(sorted({module for op in ops for module in (op.__module__, op.implementation)}))

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The raw columns that features are computed from, each once."""
        return tuple(dict.fromkeys((*self.columns, *(name for each in self.declared for name in each.columns))))
