"""The `data` section of the config: where the rows lie, how they are written, and what is to be learned from them."""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from components.section import Section, Task

Format = Literal["csv", "parquet", "tfrecord", "bigquery", "images"]
"""`csv`: delimited text. `images`: a folder for each class, holding PNG or JPEG files."""

ValueType = Literal["int", "float", "bytes"]
"""The three kinds of value that a tf.Example can hold: int64, float32, bytes."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)\s*([{''.join(_UNITS)}])")


def _ascii_sign(text: str) -> str:
    if not text.isascii() or text in "\r\n":
        raise ValueError(f"expected one ASCII character that is no line break, received {text!r}")
    return text


def _known_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(
            f"expected an encoding that Python knows, such as utf-8 or cp1252, received {name!r}"
        ) from None
    return name


def _seconds(value: Any) -> Any:
    """`7d` as seconds; anything else is left to pydantic."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found:
        return float(found[1]) * _UNITS[found[2]]
    if isinstance(value, str):
        raise ValueError(f"expected seconds, or a duration such as 90m, 12h, 7d or 2w, received {value!r}")
    return value


def _several(value: Any) -> Any:
    """One text stands for a list of one."""
    if value == "" or (isinstance(value, (list, tuple)) and "" in value):
        raise ValueError("expected a text, received an empty one")
    return (value,) if isinstance(value, str) else value


def _part(value: Any) -> Any:
    texts = _several(value)
    if isinstance(texts, (list, tuple)) and texts and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"expected a share such as 8, or texts (values of a column, or file patterns), received {value!r}")


Sign = Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_ascii_sign)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_several, json_schema_input_type=str | tuple[str, ...])]
"""One text, or a list of them."""
Part = Annotated[
    int | tuple[str, ...], BeforeValidator(_part, json_schema_input_type=PositiveInt | str | tuple[str, ...])
]
"""A share, or texts: values of a column, or patterns of files."""
Duration = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str), Field(ge=0)]
"""Seconds, or a text such as 7d."""


class CsvConfig(Section):
    """How the rows are written in the text files."""

    delimiter: Sign = ","
    """The character between two fields."""
    quote: Sign = '"'
    """The character around a field that holds delimiters, quotes (doubled) or line breaks."""
    null_values: tuple[str, ...] = ("",)
    """Fields that mean "missing". The empty field always does."""
    encoding: Annotated[str, AfterValidator(_known_encoding)] = "utf-8"
    """How the text is encoded. The examples hold UTF-8 in any case."""
    header: bool = True
    """Whether the first row holds the names of the columns; without it they are column_1, column_2, ..."""
    skip_initial_space: bool = False
    """Whether spaces behind a delimiter are no part of the field."""

    @model_validator(mode="after")
    def _signs_differ(self) -> CsvConfig:
        if self.delimiter == self.quote:
            raise ValueError(f"expected a delimiter and a quote that differ, received {self.quote!r} for both")
        return self


class TfrecordConfig(Section):
    """What the records hold."""

    payload: Literal["example", "sequence_example"] = "example"
    """tf.train.Example or tf.train.SequenceExample. Records are passed on as they are."""


class BigqueryConfig(Section):
    """How the rows are queried; credentials come from the environment."""

    query: str = Field(min_length=1)
    """GoogleSQL. @span_yyyymmdd_utc, @span_begin_timestamp and @span_end_timestamp stand for the span's day."""
    project: str | None = None
    """The project that pays for the query; that of the credentials if not given."""
    temp_location: str | None = None
    """A gs:// folder for what BigQuery exports; Beam's --temp_location if not given."""


class SplitConfig(Section):
    """How the rows are shared out. A row's split depends on the row alone, so it is the same in every run.

    - `hash`: by a hash of the row, or of `columns`; `train`, `eval` and `test` are shares, such as 8 and 2.
    - `group`: as `hash`, and rows that agree in `columns` stay together: no user is in two splits.
    - `time`: the oldest rows by `columns` (one) are for training, the newest for `eval` or `test`; shares of rows.
    - `column`: `train`, `eval` and `test` name the values of `columns` (one).
    - `files`: `train`, `eval` and `test` are patterns of files below `path`.
    """

    by: Literal["hash", "group", "time", "column", "files"] = "hash"
    """What decides."""
    columns: Texts = ()
    """The columns that decide. For `time`: seconds since 1970, or ISO 8601 texts."""
    train: Part
    """The rows that the model learns from: a share, values of the column, or patterns of files."""
    eval: Part
    """The rows that the model is judged on."""
    test: Part | None = None
    """Rows that neither training nor evaluation sees; left out if not given."""
    gap: Duration = 0.0
    """For `time`: rows this long after the end of a split are left out, in seconds or as 90m, 12h, 7d, 2w."""

    @model_validator(mode="after")
    def _fits(self) -> SplitConfig:
        shares = self.by in ("hash", "group", "time")
        expected = "a share such as 8" if shares else "values of the column" if self.by == "column" else "file patterns"
        for name, part in self.parts().items():
            if isinstance(part, int) != shares:
                raise ValueError(f"by: {self.by} takes {expected} for {name}, received {part}")
        if self.by == "group" and not self.columns:
            raise ValueError("by: group needs the columns that make a group, such as columns: [user_id]")
        if self.by in ("time", "column") and len(self.columns) != 1:
            raise ValueError(f"by: {self.by} needs one column, such as columns: [name], received {list(self.columns)}")
        if self.by == "files" and self.columns:
            raise ValueError("by: files looks at no columns; leave columns out")
        if self.gap and self.by != "time":
            raise ValueError(f"gap has a meaning with by: time only, received by: {self.by}")
        return self

    def parts(self) -> dict[str, int | tuple[str, ...]]:
        """What each split takes, in the order in which shares follow each other."""
        parts = {"train": self.train, "eval": self.eval, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def names(self) -> list[str]:
        """The splits."""
        return list(self.parts())


class BadRowsConfig(Section):
    """What happens to rows that cannot be taken: too few fields, undecodable text, a value of a wrong type."""

    action: Literal["quarantine", "fail"] = "quarantine"
    """quarantine: they are set aside, in a file beside the examples. fail: one of them ends the run."""
    max_fraction: float = Field(default=0.001, ge=0, le=1)
    """With more than this share of bad rows the run ends all the same."""


class SpansConfig(Section):
    """Which spans of a path with {SPAN}, or {YYYY}, {MM} and {DD}, are taken; a date's span is its days since 1970."""

    latest: PositiveInt = 1
    """How many spans, counted back from the newest one; those that are not there are passed over."""
    start: NonNegativeInt | None = None
    """With `end`: this span and those after it, rather than the newest. Alone: none before it is taken."""
    end: NonNegativeInt | None = None
    """The last span that is taken."""

    @model_validator(mode="after")
    def _in_order(self) -> SpansConfig:
        if self.end is not None and (self.start is None or self.start > self.end):
            raise ValueError(f"end needs a start that is not after it, received {self.start} and {self.end}")
        if self.end is not None and "latest" in self.model_fields_set:
            raise ValueError("give either latest, or start and end")
        return self


class IngestConfig(Section):
    """What the examples depend on, besides the files: the cache key of ExampleGen."""

    format: Format | None = None
    """How the data is stored; found from what lies at `path` if not given."""
    csv: CsvConfig = CsvConfig()
    """How the text files are written."""
    tfrecord: TfrecordConfig = TfrecordConfig()
    """What TFRecord files hold."""
    bigquery: BigqueryConfig | None = None
    """The query, if the rows come from BigQuery; then there is no `path`."""
    columns: tuple[str, ...] = ()
    """The columns that are taken; all of them if not given. Of Parquet files the others are not even read."""
    types: dict[str, ValueType] = Field(default_factory=dict)
    """Types of columns that are not to be found from the values, such as `zip: bytes`; what does not fit is bad."""
    split: SplitConfig = SplitConfig(train=2, eval=1)
    """How the rows are shared out between training and evaluation."""
    bad_rows: BadRowsConfig = BadRowsConfig()
    """What happens to rows that cannot be taken."""


class DataConfig(IngestConfig):
    """The data: its files, how they are read, and the task that they pose."""

    path: Texts = ()
    """A file, a folder, or a pattern such as data/trips/*.csv or data/{SPAN}/*.csv, or a list of these; local or remote
    (gs://bucket/trips/*.csv)."""
    spans: SpansConfig = SpansConfig()
    """Which spans are taken, if the path has any."""
    label: str = Field(min_length=1)
    """What is to be predicted: a column, or an expression of columns such as `tips > 0.2 * fare`."""
    task: Task = "binary"
    """What kind of prediction: one of two classes, one of several, or a number."""

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        queried = self.bigquery is not None
        if (self.format == "bigquery") > queried or queried > (self.format in (None, "bigquery")):
            raise ValueError("format: bigquery and a bigquery section with the query go together")
        if queried == bool(self.path):
            raise ValueError("expected a path, or a bigquery section with a query, and not both")
        if queried and self.split.by == "files":
            raise ValueError("split.by: files needs files; BigQuery has rows only")
        return self

    def ingest(self, format_: Format) -> IngestConfig:
        """The part that the examples depend on; a new label or task leaves it, and so the cache, as it is."""
        fields = {name: getattr(self, name) for name in IngestConfig.model_fields if name != "format"}
        return IngestConfig(format=format_, **fields)
