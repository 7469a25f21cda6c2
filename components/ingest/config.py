"""The `data` section of the config: where the data is, its format, its splits, and what to predict."""

from __future__ import annotations

import codecs
import itertools
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from components.base.config_section import Section, Task
from components.data.date_texts import Unit
from components.features import expression

Format = Literal["csv", "parquet", "tfrecord", "bigquery", "images"]
"""`csv`: delimited text. `images`: a folder for each class, with PNG or JPEG files."""

LabelName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)]
"""It becomes a part of names of outputs, metrics and folders."""

ValueType = Literal["int", "float", "bytes"]
"""The three types of values in a tf.Example: int64, float32, bytes."""

NumberForm = Literal["thousands", "decimal_comma", "percent", "currency", "accounting"]
"""How a text column writes numbers; see `CsvConfig.formats`."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)\s*([{''.join(_UNITS)}])")


def _ascii_sign(text: str) -> str:
    if not text.isascii() or text in "\r\n":
        raise ValueError(f"expected one ASCII character that is not a line break, received {text!r}")
    return text


def _python_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f"expected an encoding of Python's, such as utf-8 or cp1252, received {name!r}") from None
    return name


def _seconds(value: Any) -> Any:
    """Convert `7d` to seconds; pydantic validates anything else."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, str):
        raise ValueError(f"expected seconds, or a duration such as 90m, 12h, 7d or 2w, received {value!r}")
    return value


def _as_tuple(value: Any) -> Any:
    """Convert one text to a tuple of one."""
    if value == "" or (isinstance(value, (list, tuple)) and "" in value):
        raise ValueError("expected a text, received an empty one")
    return (value,) if isinstance(value, str) else value


def _part(value: Any) -> Any:
    texts = _as_tuple(value)
    if isinstance(texts, (list, tuple)) and texts and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"expected a share such as 8, or texts (values of a column, or file patterns), received {value!r}")


Character = Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_ascii_sign)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...])]
"""One text, or a list of them."""
Part = Annotated[
    int | tuple[str, ...], BeforeValidator(_part, json_schema_input_type=PositiveInt | str | tuple[str, ...])
]
"""A share, or texts: values of a column, or patterns of files."""
Duration = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str), Field(ge=0)]
"""Seconds, or a text such as 7d."""


class CsvConfig(Section):
    """The format of text files."""

    delimiter: Character = ","
    """The character between two fields."""
    quote: Character = '"'
    """The character around a field that holds delimiters, quotes (doubled) or line breaks."""
    null_values: tuple[str, ...] = ("",)
    """Fields that mean "missing". The empty field always does."""
    encoding: Annotated[str, AfterValidator(_python_encoding)] = "utf-8"
    """The encoding of the text. The examples always hold UTF-8."""
    decimal: Literal[".", ","] = "."
    """The decimal sign of numbers. With a comma, points separate thousands: `1.234,5`."""
    formats: dict[str, NumberForm] = Field(default_factory=dict)
    """How columns write numbers, such as `price: currency`. `thousands`: 1,234.5. `decimal_comma`: 3,14 or 1.234,5.
    `percent`: 12 %, which becomes 0.12. `currency`: $1,200 or 5 €. `accounting`: as currency, and (123) is -123. A row
    with another text is bad. The columns are floats, unless `types` says otherwise."""
    header: bool = True
    """Whether the first row has the names of the columns; if not, they are column_1, column_2, ..."""
    skip_initial_space: bool = False
    """Whether to remove spaces after a delimiter."""

    @model_validator(mode="after")
    def _signs_differ(self) -> CsvConfig:
        if self.delimiter == self.quote:
            raise ValueError(f"expected a delimiter and a quote that differ, received {self.quote!r} for both")
        return self


class TfrecordConfig(Section):
    """The contents of TFRecord files."""

    payload: Literal["example", "sequence_example"] = "example"
    """tf.train.Example; or tf.train.SequenceExample, whose feature lists, with one value in each step, become list
    columns."""


class ImagesConfig(Section):
    """Where images are, and which are accepted: complete PNG and JPEG files of one grey or RGB image with 8 bits per
    channel.
    """

    path_column: str | None = None
    """For a table (CSV or Parquet): the column with the names of image files. The files become the column `column`."""
    folder: str | None = None
    """The folder that names in `path_column` start at, local or remote; default: the folder of the table's file.
    Absolute names and URLs stay as they are."""
    column: str = Field(default="image", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The name of the column that `path_column` adds."""
    encoded_columns: Texts | None = None
    """For TFRecord and Parquet files: the columns with encoded images, which are checked; default: those of the
    operation `image`."""
    max_megapixels: float = Field(default=50.0, gt=0, le=1000)
    """The greatest number of pixels of an image, in millions, which its header says; a larger one is not decoded. A
    worker needs 4 bytes of memory for each, 5 with an alpha channel."""

    @model_validator(mode="after")
    def _of_table(self) -> ImagesConfig:
        if self.path_column is None and (self.folder is not None or self.column != "image"):
            field = "column" if self.folder is None else "folder"
            raise ValueError(f"{field} needs path_column, the column with the names of the image files")
        if self.path_column == self.column:
            raise ValueError(
                f"expected another name for the column of images than that of path_column, received {self.column!r}; "
                "set column, such as column: photo"
            )
        return self


class BigqueryConfig(Section):
    """The query; credentials come from the environment."""

    query: str = Field(min_length=1)
    """GoogleSQL. @span_yyyymmdd_utc, @span_begin_timestamp and @span_end_timestamp stand for the span's day."""
    project: str | None = None
    """The project that pays for the query; default: the project of the credentials."""
    temp_location: str | None = None
    """A gs:// folder for BigQuery's exports; default: Beam's --temp_location."""


class SplitConfig(Section):
    """How rows are assigned to splits. A row's split is the same in every run on the same data; with `hash` and `group`
    it depends only on the row.

    - `hash`: by a hash of the row without label and weight, or by a hash of `columns`; `train`, `eval` and `test` are
      shares, such as 8 and 2.
    - `group`: as `hash`, and rows with equal values in `columns` are in one split: no user is in two splits.
    - `time`: the oldest rows by `columns` (one) go to `train`, the newest to `eval` or `test`; shares of rows.
    - `within`: shares of the rows of each value of the first of `columns`, such as each user, in the order of a hash of
      the other ones. So each user has rows in `train`, and users with enough rows have some in every split.
    - `within_time`: as `within`; the oldest rows of each user by the second of `columns` go to `train`. Further columns
      order rows with equal times by their hash; without any, such rows are in one split.
    - `column`: `train`, `eval` and `test` name the values of `columns` (one).
    - `files`: `train`, `eval` and `test` are patterns of files below `path`.
    """

    by: Literal["hash", "group", "time", "within", "within_time", "column", "files"] = "hash"
    """The method."""
    columns: Texts = ()
    """The columns that the method uses. A time is a number since 1970, in `unit`, or an ISO 8601 text. For `within`:
    [user, item]; for `within_time`: [user, time], or [user, time, item]."""
    unit: Unit = "seconds"
    """For `time` and `within_time`: unit of times that are numbers."""
    train: Part
    """The rows to train on: a share, values of the column, or patterns of files."""
    eval: Part
    """The rows to evaluate the model on."""
    test: Part | None = None
    """Rows that neither training nor evaluation uses; default: no such split."""
    gap: Duration = 0.0
    """For `time`: rows within this time after the end of a split are left out; seconds, or 90m, 12h, 7d, 2w."""

    @model_validator(mode="after")
    def _fits(self) -> SplitConfig:
        shares = self.by in ("hash", "group", "time", "within", "within_time")
        expected = "a share such as 8" if shares else "values of the column" if self.by == "column" else "file patterns"
        for name, part in self.parts().items():
            if isinstance(part, int) != shares:
                raise ValueError(f"by: {self.by} takes {expected} for {name}, received {part}")
        if self.by == "group" and not self.columns:
            raise ValueError("by: group needs the columns that make a group, such as columns: [user_id]")
        if self.by.startswith("within") and len(self.columns) < 2:
            example = "[user, time]" if self.by == "within_time" else "[user, item]"
            raise ValueError(
                f"by: {self.by} needs the column of the group, and one that orders its rows, such as "
                f"columns: {example}, received {list(self.columns)}"
            )
        if self.by in ("time", "column") and len(self.columns) != 1:
            raise ValueError(f"by: {self.by} needs one column, such as columns: [name], received {list(self.columns)}")
        if self.by == "files" and self.columns:
            raise ValueError("by: files uses no columns; remove columns")
        if self.unit != "seconds" and self.by not in ("time", "within_time"):
            raise ValueError(f"unit needs by: time or by: within_time, received by: {self.by}")
        if self.gap and self.by != "time":
            raise ValueError(f"gap needs by: time, received by: {self.by}")
        return self

    def parts(self) -> dict[str, int | tuple[str, ...]]:
        """Return the part of each split by name, in the order train, eval, test."""
        parts = {"train": self.train, "eval": self.eval, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def names(self) -> list[str]:
        """Return the names of the splits."""
        return list(self.parts())


class BadRowsConfig(Section):
    """What happens to rows that cannot be ingested: too few fields, undecodable text, a value of a wrong type or
    of a great size.
    """

    action: Literal["quarantine", "fail"] = "quarantine"
    """quarantine: bad rows go to a file in the examples' folder. fail: one bad row ends the run."""
    max_fraction: float = Field(default=0.001, ge=0, le=1)
    """With a larger share of bad rows the run ends with an error."""
    max_cell_bytes: PositiveInt = 10_000_000
    """The greatest size of a text or of bytes; a row with a larger one is bad. Images have a bound of their own."""


class SpansConfig(Section):
    """The spans to read from a path with {SPAN}, or {YYYY}, {MM} and {DD}; a date's span is its days since 1970."""

    latest: PositiveInt = 1
    """How many spans, counted back from the newest; missing ones are skipped."""
    start: NonNegativeInt | None = None
    """With `end`: the first span to read, instead of the newest spans. Alone: earlier spans are not read."""
    end: NonNegativeInt | None = None
    """The last span to read."""

    @model_validator(mode="after")
    def _in_order(self) -> SpansConfig:
        if self.end is not None and (self.start is None or self.start > self.end):
            raise ValueError(f"end needs a start that is not after it, received {self.start} and {self.end}")
        if self.end is not None and "latest" in self.model_fields_set:
            raise ValueError("give either latest, or start and end")
        return self


class RowsConfig(Section):
    """How rows are read and assigned to splits."""

    format: Format | None = None
    """The format of the data; default: inferred from the files at `path`."""
    csv: CsvConfig = CsvConfig()
    """The format of text files."""
    tfrecord: TfrecordConfig = TfrecordConfig()
    """The contents of TFRecord files."""
    images: ImagesConfig = ImagesConfig()
    """Where images are, and which are accepted; others are bad rows."""
    bigquery: BigqueryConfig | None = None
    """The query, if the rows come from BigQuery; `path` is then not set."""
    columns: tuple[str, ...] = ()
    """The columns to ingest; default: all. Other columns of Parquet files are not read at all."""
    types: dict[str, ValueType] = Field(default_factory=dict)
    """Types of columns that are not inferred from the values, such as `zip: bytes`; a row with another value is bad."""
    split: SplitConfig = SplitConfig(train=2, eval=1)
    """How rows are assigned to training and evaluation."""
    bad_rows: BadRowsConfig = BadRowsConfig()
    """What happens to rows that cannot be ingested."""


class IngestConfig(RowsConfig):
    """What the examples depend on apart from the files: the cache key of ExampleGen."""

    unhashed: tuple[str, ...] = ()
    """Columns that a split by the hash of whole rows ignores, whether or not the data has them: those of the labels and
    of the weight."""


class DataConfig(RowsConfig):
    """The data: its files, their format, and what to predict."""

    path: Texts = ()
    """A file, a folder, or a pattern such as data/trips/*.csv or data/{SPAN}/*.csv, or a list of these; local or remote
    (gs://bucket/trips/*.csv)."""
    remedy: str | None = None
    """What generates the data if it is missing, such as `run make data`; the error about a missing path names it."""
    spans: SpansConfig = SpansConfig()
    """The spans to read, if the path has any."""
    label: str | None = Field(default=None, min_length=1)
    """What to predict: a column (or its header), or an expression of columns such as `tips > 0.2 * fare`."""
    labels: dict[LabelName, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Several labels that one model predicts, instead of `label`: name → a column or an expression, as in
    `{click: clicked, purchase: price > 0}`. The names end the names of the model's outputs, `probability_click`, and
    begin those of the metrics, `click/auc`."""
    task: Task = "binary"
    """The kind of prediction: one of two classes, one of several classes, a number, or (retrieval) which of all items
    fit a user or another query. A row of a retrieval is an interaction of a query with an item if its label is 1; a row
    with label 0 counts neither in the loss nor in the metrics."""
    weight: str | None = None
    """The column with the weight of each row, a number from 0 on: a row of weight 2 counts as two rows in statistics,
    in the loss and in the metrics. It is no feature unless `features` names it, and a request needs none."""
    examples_format: Literal["auto", "parquet", "tfrecord"] = "auto"
    """How nodes store examples. parquet: as columns. tfrecord: as tf.Examples, row by row, which TFX's own components
    read. auto: parquet, unless a node of the pipeline reads only tfrecord; the log names it."""

    @model_validator(mode="after")
    def _label_or_labels(self) -> DataConfig:
        if (self.label is None) != bool(self.labels):
            received = "both" if self.labels else "neither"
            raise ValueError(f"expected a label, or several labels by name, received {received}")
        if len(self.labels) == 1:
            raise ValueError(f"labels: expected two or more, received only {next(iter(self.labels))}; use label")
        return self

    @property
    def declared_labels(self) -> dict[str, str]:
        """Name → label; the name of the only one is empty."""
        return self.labels or {"": self.label or ""}

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        queried = self.bigquery is not None
        if (self.format == "bigquery") > queried or queried > (self.format in (None, "bigquery")):
            raise ValueError("expected both format: bigquery and a bigquery section with the query, or neither")
        if queried == bool(self.path):
            raise ValueError("expected a path, or a bigquery section with a query, and not both")
        if queried and self.images.path_column is not None:
            raise ValueError("images.path_column needs a table in files; BigQuery has only rows")
        if queried and self.split.by == "files":
            raise ValueError("split.by: files needs files; BigQuery has only rows")
        return self

    @property
    def places(self) -> list[tuple[str, str]]:
        """Fields of the config with where its files are: (field, path or URL)."""
        folder = self.images.folder
        return [*(("data.path", path) for path in self.path), *([("data.images.folder", folder)] if folder else [])]

    def ingest(self, format_: Format) -> IngestConfig:
        """Return the part that the examples depend on, which is the cache key.

        A new task does not change it. A new label or weight changes it only where rows are split by their hash.
        """
        fields = {name: getattr(self, name) for name in RowsConfig.model_fields if name != "format"}
        unhashed = tuple(sorted(self._target_columns())) if self.split.by in ("hash", "group") else ()
        return IngestConfig(format=format_, unhashed=unhashed, **fields)

    def _target_columns(self) -> set[str]:
        """Return the columns of the labels, and of the weight, which may depend on the label."""
        labels = (expression.parse(text).columns for text in self.labels.values() or filter(None, [self.label]))
        return {*itertools.chain.from_iterable(labels), *([self.weight] if self.weight else [])}
