"""The `features` section: which operation turns each column into what the model reads."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, Discriminator, Field, model_validator

from components.names import ImportPath
from components.section import Section

Dtype = Literal["int", "float", "bytes"]


class Op(Section):
    """One feature operation: its name in the config, the dtypes it takes, and what it does with a missing value."""

    takes: ClassVar[frozenset[Dtype]]
    op: str


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
    """1 where the value is missing, 0 where it is not: beside an operation that gives missing values a number."""

    takes = frozenset[Dtype]({"int", "float", "bytes"})
    op: Literal["missing"] = "missing"


class PiecewiseLinear(Op):
    """A number for each bin: 0 below it, 1 above it, and in it how far the value has come (Gorishniy et al. 2022, On
    Embeddings for Numerical Features in Tabular Deep Learning).

    The edges are quantiles of the distinct values, so that a long tail keeps its bins beside a value that is very
    frequent. A missing value is 0 in all of them, as the least value is.
    """

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["piecewise_linear"] = "piecewise_linear"
    bins: int = Field(default=16, ge=2, le=1000)
    """Number of bins; a column with fewer distinct values fills fewer."""


class Bucketize(Op):
    """The quantile bucket that the value falls in, as an id to embed. A missing value has a bucket of its own."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["bucketize"] = "bucketize"
    buckets: int = Field(default=10, ge=2, le=10_000)
    """Number of quantile buckets; a column with fewer distinct values gets fewer."""


class Vocab(Op):
    """The value's rank in a vocabulary of the training split, as an id to embed. Missing has an id of its own."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["vocab"] = "vocab"
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """The most frequent values that are kept."""
    min_frequency: int = Field(default=1, ge=1)
    """Values seen in fewer training rows than this are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Ids over which values outside the vocabulary are hashed."""


class Hash(Op):
    """A hash of the value, as an id to embed: for ids too many to list. Missing has an id of its own."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["hash"] = "hash"
    buckets: int = Field(ge=2, le=1_000_000_000)
    """Number of ids; two values may share one."""


class Image(Op):
    """An encoded picture (PNG, JPEG, GIF, BMP), decoded to grey or colour and resized, as floats in [0, 1].

    A missing picture is black.
    """

    takes = frozenset[Dtype]({"bytes"})
    op: Literal["image"] = "image"
    height: int = Field(ge=1, le=4096)
    """Rows of pixels that the model sees."""
    width: int = Field(ge=1, le=4096)
    """Columns of pixels that the model sees."""
    channels: Literal[1, 3] = 1
    """1: grey, 3: colour."""


OPS: dict[str, type[Op]] = {
    op.model_fields["op"].default: op
    for op in (ZScore, Log, MinMax, Clip, PassThrough, Missing, PiecewiseLinear, Bucketize, Vocab, Hash, Image)
}


def _op(value: Any) -> Any:
    """`vocab` and `{vocab: {size: 10}}` are short for `{op: vocab, size: 10}`."""
    if isinstance(value, str):
        return {"op": value}
    if isinstance(value, dict) and "op" not in value and len(value) == 1:
        ((name, options),) = value.items()
        if options is None or isinstance(options, dict):
            return {**(options or {}), "op": name}
    if not isinstance(value, (dict, Op)):
        raise ValueError(f"expected an operation such as z_score or {{vocab: {{size: 1000}}}}, received {value!r}")
    return value


def _ops(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


AnyOp = Annotated[
    Annotated[
        Union[  # noqa: UP007 - a value, not a hint
            ZScore, Log, MinMax, Clip, PassThrough, Missing, PiecewiseLinear, Bucketize, Vocab, Hash, Image
        ],
        Discriminator("op"),
    ],
    BeforeValidator(_op),
]


class FeaturesConfig(Section):
    """What the model reads: an operation, or several, for each column that is a feature."""

    columns: dict[str, Annotated[tuple[AnyOp, ...], BeforeValidator(_ops)]] = Field(default_factory=dict)
    """Column → operation, `{operation: options}`, or a list of these. A column that is not named is no feature."""
    preprocessing_fn: ImportPath | None = None
    """A preprocessing_fn of your own, as stock TFX takes it, instead of `columns`."""

    @model_validator(mode="after")
    def _one_of_both(self) -> FeaturesConfig:
        if bool(self.columns) == bool(self.preprocessing_fn):
            raise ValueError(
                "expected either columns (an operation per feature) or preprocessing_fn, received "
                + ("both" if self.columns else "neither")
            )
        return self
