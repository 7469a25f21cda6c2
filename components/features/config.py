"""The `features` section: which operation turns each column into what the model reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, model_validator

from components.features import names
from components.names import PreprocessingFn
from components.section import Section

Dtype = Literal["int", "float", "bytes"]


class Op(Section):
    """One feature operation: its name in the config, the dtypes it takes, and what it does with a missing value."""

    takes: ClassVar[frozenset[Dtype]]
    op: str

    @property
    def suffix(self) -> str:
        """The operation's part of its feature's name."""
        return self.op

    def expanded(self) -> tuple[Op, ...]:
        """The operations that this one is short for, each of which makes one feature."""
        return (self,)


class Embedded(Op):
    """An operation that gives ids, which the model embeds."""

    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of the embedding; without it, the model decides by the number of ids."""

    @property
    def rows(self) -> int:
        """Rows of the embedding's table, as far as they follow from the config: without a vocabulary's entries."""
        raise NotImplementedError


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


class Cyclical(Op):
    """sin and cos of 2π · x / period, for what begins anew: hours of a day, degrees. A missing value becomes 0, 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["cyclical"] = "cyclical"
    period: float = Field(gt=0, allow_inf_nan=False)
    """After how much the values begin anew, such as 24."""


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
    """The most frequent values that are kept."""
    min_frequency: int = Field(default=1, ge=1)
    """Values seen in fewer training rows than this are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Ids over which values outside the vocabulary are hashed."""

    @property
    def rows(self) -> int:
        """What is outside the vocabulary, and missing."""
        return self.oov_buckets + 1


class Hash(Embedded):
    """A hash of the value, as an id to embed: for ids too many to list. Missing has an id of its own."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["hash"] = "hash"
    buckets: int = Field(ge=2, le=1_000_000_000)
    """Number of ids; two values may share one."""

    @property
    def rows(self) -> int:
        """A row per id, and missing."""
        return self.buckets + 1


class MultiHot(Op):
    """A number for each entry of a vocabulary of the training split: 1 if it is among the example's values, else 0.

    An example has several values by a text that holds them all (`red|green`), by a column of lists, or both. The width
    is `size` + `oov_buckets`, however many entries the training split has. A missing value is 0 in all of them.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["multi_hot"] = "multi_hot"
    size: int = Field(default=100, ge=1, le=100_000)
    """The most frequent values that are kept."""
    min_frequency: int = Field(default=1, ge=1)
    """Values that occur less often than this in the training split are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=100_000)
    """Numbers over which values outside the vocabulary are hashed."""
    separator: str = Field(default="|", min_length=1)
    """What stands between the values in a text. Blanks around a value are dropped, and so is an empty one."""


class Split(Embedded):
    """The ranks of the example's values in a vocabulary of the training split, as ids to embed; the mean is taken.

    An example has several values by a text that holds them all (`red|green`), by a column of lists, or both. Where all
    are missing, the mean is 0.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["split"] = "split"
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """The most frequent values that are kept."""
    min_frequency: int = Field(default=1, ge=1)
    """Values that occur less often than this in the training split are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Ids over which values outside the vocabulary are hashed."""
    separator: str = Field(default="|", min_length=1)
    """What stands between the values in a text. Blanks around a value are dropped, and so is an empty one."""
    max_values: int = Field(default=16, ge=2, le=10_000)
    """Values of an example that are read; further ones are dropped."""

    @property
    def rows(self) -> int:
        """What is outside the vocabulary, and none."""
        return self.oov_buckets + 1


class Text(Embedded):
    """The words of a text and their sequences, hashed or looked up in a vocabulary, as ids to embed; the mean is taken.

    Words are what letters and digits of any script make up; all else stands between them, bytes that are no UTF-8 too.
    Where a text is missing or holds no word, the mean is 0.
    """

    takes = frozenset[Dtype]({"bytes"})
    op: Literal["text"] = "text"
    lower: bool = True
    """Whether capitals are read as small letters."""
    ngrams: int = Field(default=2, ge=1, le=3)
    """The longest sequence of words: 1 reads words alone, 2 pairs too, 3 triples too."""
    buckets: int = Field(default=10_000, ge=2, le=1_000_000_000)
    """Number of ids that words and sequences are hashed to; two may share one."""
    vocabulary: int | None = Field(default=None, ge=1, le=50_000_000)
    """Instead of hashing: the most frequent words and sequences of the training split that are kept. All others share
    one id."""
    max_values: int = Field(default=64, ge=2, le=100_000)
    """Words and sequences of an example that are read; of each text words come first, and further ones are dropped."""

    @model_validator(mode="after")
    def _one_way(self) -> Text:
        # What is written out with its default, as a recorded plan is, asks for nothing.
        if self.vocabulary is not None and self.buckets != type(self).model_fields["buckets"].default:
            raise ValueError("expected buckets or vocabulary, received both")
        return self

    @property
    def rows(self) -> int:
        """A row per bucket, or what is outside the vocabulary; and none."""
        return 2 if self.vocabulary is not None else self.buckets + 1


Part = Literal["year", "month", "day", "weekday", "hour", "minute", "day_of_year"]
Unit = Literal["seconds", "milliseconds", "days"]


@dataclass(frozen=True)
class Span:
    """The values that a part of a date can have."""

    first: int
    count: int


SPANS: dict[Part, Span] = {
    "month": Span(1, 12),
    "day": Span(1, 31),
    "weekday": Span(0, 7),
    "hour": Span(0, 24),
    "minute": Span(0, 60),
    "day_of_year": Span(1, 366),
}
"""A year is a number, and has none."""


class DatePart(Embedded):
    """A part of a date or time, as an id to embed; the year as a number, by z_score.

    A whole number counts from 1970-01-01 UTC. A text is ISO 8601: `2024-03-01`, `2024-03-01 17:05`,
    `2024-03-01T17:05:00.123Z`, `2024-03-01T17:05:00+02:00`; parts are those in UTC. A text that is no date counts as
    missing. Missing has an id of its own; a missing year becomes the mean, 0.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["date_part"] = "date_part"
    part: Part
    """Which part; Monday is the first weekday. The feature is called after it, as in `pickup_weekday`."""
    unit: Unit = "seconds"
    """What a whole number counts."""

    @model_validator(mode="after")
    def _has_it(self) -> DatePart:
        if self.part == "year" and self.embedding is not None:
            raise ValueError("year is a number and has no embedding; leave embedding out")
        return _timed(self, (self.part,), self.unit)

    @property
    def suffix(self) -> str:
        """The part."""
        return self.part

    @property
    def rows(self) -> int:
        """A row per value of the part, and missing; a year has no table."""
        return SPANS[self.part].count + 1 if self.part in SPANS else 0


class DateParts(Op):
    """Several parts of a date: `{date_parts: [weekday, hour]}` is short for two of date_part. Missing is as there."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["date_parts"] = "date_parts"
    parts: tuple[Part, ...]
    """Which parts; each makes a feature of its own."""
    unit: Unit = "seconds"
    """What a whole number counts."""
    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of each part's embedding; without it, the model decides by the number of ids."""

    @model_validator(mode="after")
    def _has_them(self) -> DateParts:
        # A least length of the field would be told as well where a part is misspelled.
        if not self.parts:
            raise ValueError("expected at least one part, received none")
        return _timed(self, self.parts, self.unit)

    def expanded(self) -> tuple[Op, ...]:
        """A date_part for each part."""
        widths = {part: self.embedding if part in SPANS else None for part in self.parts}
        return tuple(DatePart(part=part, unit=self.unit, embedding=widths[part]) for part in self.parts)


Dated = TypeVar("Dated", bound=Op)


def _timed(op: Dated, parts: Sequence[Part], unit: Unit) -> Dated:
    for part in parts:
        if unit == "days" and part in ("hour", "minute"):
            raise ValueError(f"expected unit seconds or milliseconds for {part}, received days, which have none")
    return op


class Cross(Embedded):
    """Several columns as one: a hash of all their values together, as an id to embed.

    Of several values of a column the first is taken. An example that misses any of them has an id of its own.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["cross"] = "cross"
    columns: tuple[str, ...]
    """The columns, which need not be features by themselves."""
    buckets: int = Field(ge=2, le=1_000_000_000)
    """Number of ids; two combinations may share one."""

    @model_validator(mode="after")
    def _several(self) -> Cross:
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"expected two columns or more, each once, received {', '.join(self.columns) or 'none'}")
        return self

    @property
    def rows(self) -> int:
        """A row per id, and missing."""
        return self.buckets + 1


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
    for op in (
        ZScore, Log, MinMax, Clip, PassThrough, Missing, PiecewiseLinear, Cyclical, Bucketize, Vocab, Hash, MultiHot,
        Split, Text, DatePart, DateParts, Image,
    )
}  # fmt: skip
"""What a column can be given, by name."""


def _op(value: Any) -> Any:
    """`vocab` and `{vocab: {size: 10}}` are short for `{op: vocab, size: 10}`; of date_parts a list is enough."""
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
            DatePart,
            DateParts,
            Image,
        ],
        Discriminator("op"),
    ],
    BeforeValidator(_op),
]


def _cross_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits and _, received {name!r}")
    return name


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Feature:
    """One transformed feature that a config declares.

    Attributes:
      name: the transformed feature's.
      op: what makes it.
      columns: the raw columns that it is made of; one, but for a cross.
      key: where it stands in the `features` section.
    """

    name: str
    op: Op
    columns: tuple[str, ...]
    key: tuple[str | int, ...]


class FeaturesConfig(Section):
    """What the model reads: an operation, or several, for each column that is a feature."""

    columns: dict[str, Annotated[tuple[AnyOp, ...], BeforeValidator(_ops)]] = Field(default_factory=dict)
    """Column → operation, `{operation: options}`, or a list of these. A column that is not named is no feature."""
    crosses: dict[Annotated[str, AfterValidator(_cross_name)], Cross] = Field(default_factory=dict)
    """Name → columns whose values count together, such as `{place: {columns: [city, street], buckets: 1000}}`. Of
    several values of a column the first is taken; an example that misses any of them has an id of its own."""
    preprocessing_fn: PreprocessingFn | None = None
    """A preprocessing_fn of your own, as stock TFX takes it, instead of `columns` and `crosses`:
    package.module.function, or a file such as path/to/module.py."""

    @model_validator(mode="after")
    def _one_of_both(self) -> FeaturesConfig:
        if bool(self.columns or self.crosses) == bool(self.preprocessing_fn):
            raise ValueError(
                "expected either columns (an operation per feature) or preprocessing_fn, received "
                + ("both" if self.preprocessing_fn else "neither")
            )
        return self

    @property
    def declared(self) -> tuple[Feature, ...]:
        """The transformed features, in the order of the config."""
        of_columns = (
            Feature(names.feature(column, op.suffix), op, (column,), ("columns", column, index, written.op))
            for column, ops in self.columns.items()
            for index, written in enumerate(ops)
            for op in written.expanded()
        )
        of_crosses = (
            Feature(names.feature(name, cross.suffix), cross, cross.columns, ("crosses", name))
            for name, cross in self.crosses.items()
        )
        return (*of_columns, *of_crosses)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The raw columns that features are made of, each once."""
        crossed = (column for cross in self.crosses.values() for column in cross.columns)
        return tuple(dict.fromkeys((*self.columns, *crossed)))
