"""The `features` section of the config: the operations that transform the columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import core_schema

from components.base.config_section import Problem, Section
from components.base.names import PreprocessingFn, did_you_mean
from components.base.registry import Registry
from components.features import feature_names
from components.features.base_op import Dtype, Embedded, Op
from components.features.date_ops import DatePart, DateParts
from components.features.encoding_ops import Count, TargetMean
from components.features.geo_ops import GeoDistance
from components.features.image_ops import Image
from components.features.sequence_ops import EventSequence, OfHistory, TimeGaps
from components.features.text_ops import MultiHot, Split, Text
from components.features.vector_ops import Pretrained, Vectors, list_files


class ZScore(Op):
    """(x - mean) / standard deviation, computed from the training split. A missing value becomes 0, the mean."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["z_score"] = "z_score"


class Log(Op):
    """sign(x) · log(1 + |x|), then z_score; for heavy tails. A missing value becomes 0, the mean."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["log"] = "log"


class MinMax(Op):
    """(x - minimum) / (maximum - minimum), computed from the training split, clipped to [0, 1]. A missing value becomes
    0.
    """

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["min_max"] = "min_max"


class Clip(Op):
    """The value, clipped to bounds, then z_score. A missing value becomes 0, the mean."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["clip"] = "clip"
    low: float | None = None
    """Lower bound. By default, values are not limited from below."""
    high: float | None = None
    """Upper bound. By default, values are not limited from above."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Clip:
        if self.low is None and self.high is None:
            raise ValueError("expected low, high or both, received neither")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"expected low below high, received {self.low:g} and {self.high:g}")
        return self


class PassThrough(Op):
    """The number, unchanged. A missing value becomes 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["pass_through"] = "pass_through"


class Missing(Op):
    """1 if the value is missing, otherwise 0. Use it together with an operation that replaces missing values."""

    takes = frozenset[Dtype]({"int", "float", "bytes"})
    op: Literal["missing"] = "missing"


class PiecewiseLinear(Op):
    """One number per bin: 0 for values below the bin, 1 for values above it, linear in between (Gorishniy et al. 2022,
    On Embeddings for Numerical Features in Tabular Deep Learning).

    The edges are quantiles of the distinct values, so that a long tail gets bins even if one value is very frequent.
    A missing value is 0 in all bins, as the minimum is.

    Transformed examples contain two numbers, the index of the bin and the position in the bin. Training and the
    exported model expand them.
    """

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["piecewise_linear"] = "piecewise_linear"
    bins: int = Field(default=16, ge=2, le=1000)
    """Number of bins. A column with fewer distinct values uses fewer bins."""


class Cyclical(Op):
    """sin and cos of 2π · x / period; for periodic values such as hours or degrees. A missing value becomes 0, 0."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["cyclical"] = "cyclical"
    period: float = Field(gt=0, allow_inf_nan=False)
    """Period, in the unit of the values, such as 24."""


class Bucketize(Embedded):
    """The quantile bucket of the value, as an ID to embed. Missing values have a separate ID."""

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["bucketize"] = "bucketize"
    buckets: int = Field(default=10, ge=2, le=10_000)
    """Number of quantile buckets. A column with fewer distinct values gets fewer buckets."""

    @property
    def rows(self) -> int:
        """Number of buckets plus one for missing values."""
        return self.buckets + 1


class Vocab(Pretrained):
    """The value's rank in a vocabulary of the training split, as an ID to embed. Missing values have a separate ID."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["vocab"] = "vocab"
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """Maximum size of the vocabulary, which contains the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of training rows with a value. Rarer values are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Number of IDs to which values outside the vocabulary are hashed."""
    keep_runs: int | None = Field(default=None, ge=1, le=100_000)
    """With `training.warm_start`: number of runs without a row after which a value loses its ID. The rows of a value
    are added up over the runs, so `min_frequency` is compared with this sum. By default, the vocabulary of a run
    consists of the values of its training split alone."""

    @property
    def is_columnar(self) -> bool:
        """See Op."""
        return self.keep_runs is not None

    @property
    def rows(self) -> int:
        """Number of buckets of unknown values plus one for missing values."""
        return self.oov_buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.size


class Hashed(Embedded):
    """An operation whose IDs are buckets of a hash."""

    buckets: int = Field(ge=2, le=1_000_000_000)
    """Number of IDs. Several values may share an ID; Transform reports how many do."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of training rows in a bucket. All rarer buckets share one ID, also buckets without training rows.
    The table then only has rows for the frequent buckets and for that ID."""

    @property
    def rows(self) -> int:
        """Number of buckets plus one for missing values.

        With `min_frequency`, only one for rare buckets and one for missing values; the frequent buckets are counted by
        `most_entries`.
        """
        return 2 if self.min_frequency > 1 else self.buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.buckets if self.min_frequency > 1 else 0


class Hash(Hashed):
    """A hash of the value, as an ID to embed; for columns with very many values. Missing values have a separate ID."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["hash"] = "hash"


class Cross(Hashed):
    """A hash of the values of several columns, as an ID to embed.

    If an example has several values in a column, the first value is used. Examples that lack a value in any of the
    columns have a separate ID.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["cross"] = "cross"
    columns: tuple[str, ...]
    """Columns to combine. They need not be features themselves."""

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
            TargetMean, Count, GeoDistance,
            MultiHot, Split, Text, Vectors, EventSequence, TimeGaps, DatePart, DateParts, Image,
        )
    },
    "a subclass of components.features.base_op.Op",
    lambda entry: isinstance(entry, type) and issubclass(entry, Op),
)  # fmt: skip
"""The operations on one column, by name; installed packages add operations to the group `tfx_pipeline.operations`."""


def _parse_op(value: Any) -> Any:
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
    settings = _parse_op(value)
    name = settings.op if isinstance(settings, Op) else settings.get("op")
    if not isinstance(name, str) or name in OPS.built_in:
        return validate_built_in(settings)
    if name not in OPS:
        raise ValueError(f"unknown operation {name!r}{did_you_mean(name, OPS)}")
    return OPS[name].model_validate(settings)


class _JsonSchemaOfOps:
    """Annotation that describes one or several operations in JSON Schema.

    An operation is a name, `{name: options}`, or options with the key `op`. With json_schema_input_type of
    BeforeValidator instead, pydantic would build the union twice at each start.
    """

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        options = {name: {"$ref": ref} for name, ref in handler(schema)["items"]["discriminator"]["mapping"].items()}
        options |= {name: handler(op.__pydantic_core_schema__) for name, op in OPS.load_added()[0].items()}
        values = {name: {"anyOf": [schema, {"type": "null"}]} for name, schema in options.items()}
        values["date_parts"]["anyOf"].append({"type": "array"})
        by_name = {"type": "object", "properties": values, "additionalProperties": False, "maxProperties": 1}
        with_key = [{**schema, "required": ["op"]} for schema in options.values()]
        operation = {"title": "Operation", "anyOf": [{"enum": list(options)}, by_name, *with_key]}
        return {"anyOf": [operation, {"type": "array", "items": operation}]}


def _to_list(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


if TYPE_CHECKING:
    AnyOp = Op
else:
    AnyOp = Annotated[
        Annotated[Union[tuple(OPS.built_in.values())], Discriminator("op")],  # noqa: UP007 - a value, not a hint
        WrapValidator(_validate_op),
        # The union does not list the classes of installed packages; it would serialize them with a warning.
        SerializeAsAny(),
    ]
Ops = Annotated[tuple[AnyOp, ...], BeforeValidator(_to_list), _JsonSchemaOfOps()]
"""An operation, or a list of operations."""


def _check_cross_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits and _, received {name!r}")
    return name


OfKind = TypeVar("OfKind", bound=Op)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Feature:
    """A transformed feature that a config declares.

    Attributes:
      name: Name of the feature.
      op: Settings of the operation.
      columns: Raw columns that the feature is computed from; several for a cross, for `geo_distance`, and for
        `time_gaps` with `until`.
      key: Position in the `features` section, for error messages.
      shares: Name of the feature whose IDs and embeddings this feature shares. If None, it does not share them.
      along: Name of the feature of the sequence whose events the IDs belong to. If None, they are not along a sequence.
    """

    name: str
    op: Op
    columns: tuple[str, ...]
    key: tuple[str | int, ...]
    shares: str | None = None
    along: str | None = None

    @property
    def vocabulary(self) -> str:
        """Name of the feature's vocabulary, if the operation uses one."""
        return self.shares or self.name


class FeaturesConfig(Section):
    """The operations on columns, which create the features."""

    columns: dict[str, Ops] = Field(default_factory=dict)
    """Column → operation, `{operation: options}`, or a list of these. Other columns are not features."""
    crosses: dict[Annotated[str, AfterValidator(_check_cross_name)], Cross] = Field(default_factory=dict)
    """Name → columns to combine, such as `{address: {columns: [city, street], buckets: 1000}}`. If an example has
    several values in a column, the first value is used. Examples that lack a value in any of the columns have a
    separate ID."""
    preprocessing_fn: PreprocessingFn | None = None
    """User's preprocessing_fn with the interface of TFX, instead of `columns` and `crosses`: package.module.function,
    or a file such as path/to/module.py."""

    @model_validator(mode="after")
    def _check_source(self) -> FeaturesConfig:
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
                if isinstance(op, EventSequence) and op.of is not None and self._find_op(op.of, Vocab, Hash) is None:
                    raise ValueError(
                        f"columns.{column}.sequence.of: expected a column with vocab or hash, received {op.of!r}"
                    )
                if isinstance(op, OfHistory) and op.along is not None:
                    lead = self._find_op(op.along, EventSequence)
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

    def _find_op(self, column: str, *kinds: type[OfKind]) -> OfKind | None:
        """Return the first operation on a column that is an instance of one of the classes, or None."""
        return next((op for op in self.columns.get(column, ()) if isinstance(op, kinds)), None)

    @property
    def declared(self) -> tuple[Feature, ...]:
        """The transformed features, in the order of the config."""
        column_features = (
            self._create_feature(column, op, ("columns", column, index, declared_op.op))
            for column, ops in self.columns.items()
            for index, declared_op in enumerate(ops)
            for op in declared_op.expand()
        )
        cross_features = (
            Feature(feature_names.feature(name, cross.suffix), cross, cross.columns, ("crosses", name))
            for name, cross in self.crosses.items()
        )
        return (*column_features, *cross_features)

    def _create_feature(self, column: str, op: Op, key: tuple[str | int, ...]) -> Feature:
        feature = Feature(feature_names.feature(column, op.suffix), op, (column,), key)
        if isinstance(op, OfHistory) and op.along is not None:
            feature = replace(feature, along=feature_names.feature(op.along, "sequence"))
        if isinstance(op, TimeGaps) and op.until is not None:
            return replace(feature, columns=(column, op.until))
        if isinstance(op, GeoDistance):
            return replace(feature, columns=(column, *op.columns))
        if isinstance(op, EventSequence) and op.of is not None:
            owner = self._find_op(op.of, Vocab, Hash)
            id_fields = ("buckets", "min_frequency") if isinstance(owner, Hash) else ("size", "oov_buckets")
            fields = ("embedding", "quotient_remainder", "composition", *id_fields)
            shared_op = op.model_copy(update={name: getattr(owner, name) for name in fields})
            return replace(feature, op=shared_op, shares=feature_names.feature(op.of, owner.suffix if owner else ""))
        return feature

    @property
    def histories(self) -> frozenset[str]:
        """The columns that contain the events of histories."""
        return frozenset(column for column, ops in self.columns.items() if any(isinstance(op, OfHistory) for op in ops))

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield operations that repeat a feature, that do not fit the label or Transform, and widths without effect."""
        known: set[str] = set()
        for feature in self.declared:
            if feature.name in known:
                message = f"another operation also makes a feature {feature.name!r}; remove one"
                yield Problem(("features", *feature.key), message)
            known.add(feature.name)
            if isinstance(feature.op, Embedded) and feature.op.embedding is not None and config.model.kind == "dlrm":
                message = "with dlrm, all vectors have the width model.embedding; remove it"
                yield Problem(("features", *feature.key, "embedding"), message)
            if isinstance(feature.op, TargetMean):
                received = "data.labels" if len(config.data.declared_labels) > 1 else config.data.task
                if received in ("data.labels", "multilabel", "survival", "retrieval", "anomaly"):
                    expected = "one label, of the task binary, multiclass or regression"
                    message = f"target_mean expects {expected}, received {received}"
                    yield Problem(("features", *feature.key), f"{message}; choose another operation")
            if feature.op.is_columnar and not config.runtime.is_vectorised("Transform"):
                option = " with keep_runs" if isinstance(feature.op, Vocab) else ""
                message = f"TFX's executor of Transform does not compute {feature.op.op}{option}; remove it"
                yield Problem(("features", *feature.key), f"{message}, or add Transform to runtime.vectorised")

    def list_code(self) -> tuple[str, ...]:
        """Return the modules of installed packages and the files that operations use, which are part of cache keys."""
        ops = {type(op) for ops in self.columns.values() for op in ops if op.op not in OPS.built_in}
        modules = {module for op in ops for module in (op.__module__, op.implementation)}
        if any(isinstance(feature.op, DatePart) and feature.op.holidays for feature in self.declared):
            modules.add("holidays")
        files = {str(Path(path).absolute()) for _, path, _ in self.list_vector_files()}
        return (*sorted(modules), *sorted(files))

    def list_vector_files(self) -> Iterator[tuple[tuple[str | int, ...], str, int]]:
        """Yield the key, the path and the numbers per value of every file of pretrained vectors."""
        for feature in self.declared:
            for name, path, width in list_files(feature.op):
                yield ("features", *feature.key, name), path, width

    @property
    def remembers(self) -> bool:
        """Whether a vocabulary remembers values of earlier runs."""
        return any(isinstance(feature.op, Vocab) and feature.op.keep_runs is not None for feature in self.declared)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The raw columns that features are computed from, without duplicates."""
        return tuple(dict.fromkeys((*self.columns, *(name for feature in self.declared for name in feature.columns))))
