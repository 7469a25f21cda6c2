"""The `data` section of the config: the location and format of the data, its splits, and what to predict."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from components.base.class_set import ClassSetConfig
from components.base.config_section import Section, Task, Texts, as_tuple
from components.data.date_texts import Unit
from components.features import expression
from components.ingest.durations import Duration
from components.ingest.join_config import JoinConfig
from components.ingest.text_config import CsvConfig
from components.ingest.window_config import IngestedWindows, WindowsConfig, check_windows, set_split

Format = Literal["csv", "parquet", "tfrecord", "bigquery", "images"]
"""`csv` is delimited text. `images` is one folder of PNG or JPEG files per class."""

LabelName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)]
"""Name of a label, which becomes a part of the names of outputs, metrics and folders."""

LabelValue = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]

ValueType = Literal["int", "float", "bytes"]
"""The three types of values in a tf.Example: int64, float32, bytes."""


def _parse_part(value: Any) -> Any:
    texts = as_tuple(value)
    if isinstance(texts, (list, tuple)) and texts and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"expected a share such as 8, or texts (values of a column, or file patterns), received {value!r}")


Part = Annotated[
    int | tuple[str, ...], BeforeValidator(_parse_part, json_schema_input_type=PositiveInt | str | tuple[str, ...])
]
"""A share, or texts that are values of a column or patterns of files."""


class TfrecordConfig(Section):
    """Content of TFRecord files."""

    payload: Literal["example", "sequence_example"] = "example"
    """Type of the records: tf.train.Example, or tf.train.SequenceExample, whose feature lists become list columns. A
    feature list must have one value per step."""


class ImagesConfig(Section):
    """Where images are, and which images are accepted. An accepted image is a complete PNG or JPEG file with one image,
    grey or RGB, of at most 8 bits per channel.
    """

    path_column: str | None = None
    """For a table (CSV or Parquet): column with the names of image files. The images become the column `column`."""
    folder: str | None = None
    """Local or remote folder that relative names in `path_column` start at. By default the folder of the table."""
    column: str = Field(default="image", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the column of images that `path_column` adds."""
    encoded_columns: Texts | None = None
    """For TFRecord and Parquet files: columns of encoded images, which are checked. By default the columns with the
    operation `image`."""
    max_megapixels: float = Field(default=50.0, gt=0, le=1000)
    """Maximum number of pixels of an image, in millions. A larger image is not decoded, and its row is bad. A worker
    needs 4 bytes of memory per pixel, or 5 with an alpha channel."""

    @model_validator(mode="after")
    def _check_table(self) -> ImagesConfig:
        if self.path_column is None and (self.folder is not None or self.column != "image"):
            field = "column" if self.folder is None else "folder"
            raise ValueError(f"{field} needs path_column, the column with the names of the image files")
        if self.path_column == self.column:
            raise ValueError(
                f"expected column to differ from path_column, received {self.column!r} for both; "
                "set column, such as column: photo"
            )
        return self


class BigqueryConfig(Section):
    """A query of BigQuery. The credentials come from the environment."""

    query: str = Field(min_length=1)
    """GoogleSQL query. @span_yyyymmdd_utc, @span_begin_timestamp and @span_end_timestamp stand for the span's day."""
    project: str | None = None
    """Project that pays for the query. By default the project of the credentials."""
    temp_location: str | None = None
    """Folder in Cloud Storage (gs://) for BigQuery's exports. By default Beam's --temp_location."""


class SplitConfig(Section):
    """How rows are assigned to splits. A row gets the same split in every run on the same data. With `hash` and `group`
    the split depends only on the row.

    - `hash`: by a hash of the row without label and weight, or by a hash of `columns`; `train`, `eval` and `test` are
      shares, such as 8 and 2.
    - `group`: like `hash`, by a hash of `columns`, such as the user. All rows of a user are in the same split.
    - `time`: the oldest rows by the column in `columns` go to `train`, the newest rows to `eval` or `test`; `train`,
      `eval` and `test` are shares of the rows.
    - `within`: divides the rows of every group, such as a user, into shares. The first of `columns` is the group; a
      hash of the other columns orders its rows. Every user has rows in `train`, and a user with enough rows has rows
      in every split.
    - `within_time`: like `within`, ordered by a time, the second of `columns`: the oldest rows of every user go to
      `train`. A hash of any further columns orders rows with equal times; otherwise such rows are in the same split.
    - `column`: `train`, `eval` and `test` are values of the column in `columns`.
    - `files`: `train`, `eval` and `test` are patterns of files below `path`.
    """

    by: Literal["hash", "group", "time", "within", "within_time", "column", "files"] = "hash"
    """Method that assigns rows to splits."""
    columns: Texts = ()
    """Columns that the method uses. A time is a number since 1970 in `unit`, or an ISO 8601 text. For `within`:
    [user, item]. For `within_time`: [user, time], or [user, time, item]."""
    unit: Unit = "seconds"
    """For `time` and `within_time`: unit of times that are numbers."""
    train: Part
    """Rows to train on: a share, values of the column, or patterns of files."""
    eval: Part
    """Rows to evaluate the model on."""
    test: Part | None = None
    """Rows that neither training nor evaluation uses. By default, this split is not created."""
    gap: Duration = 0.0
    """For `time`: duration after the end of a split whose rows are left out, as seconds or 90m, 12h, 7d, 2w."""

    @model_validator(mode="after")
    def _check_method(self) -> SplitConfig:
        shares = self.by in ("hash", "group", "time", "within", "within_time")
        expected = "a share such as 8" if shares else "values of the column" if self.by == "column" else "file patterns"
        for name, part in self.parts().items():
            if isinstance(part, int) != shares:
                raise ValueError(f"by: {self.by} takes {expected} for {name}, received {part}")
        if self.by == "group" and not self.columns:
            raise ValueError("by: group needs the columns that define a group, such as columns: [user_id]")
        if self.by.startswith("within") and len(self.columns) < 2:
            example = "[user, time]" if self.by == "within_time" else "[user, item]"
            raise ValueError(
                f"by: {self.by} needs the column of the group and a column that orders its rows, such as "
                f"columns: {example}, received {list(self.columns)}"
            )
        if self.by in ("time", "column") and len(self.columns) != 1:
            raise ValueError(f"by: {self.by} needs one column, such as columns: [name], received {list(self.columns)}")
        if self.by == "files" and self.columns:
            raise ValueError("by: files does not use columns; remove columns")
        if self.unit != "seconds" and self.by not in ("time", "within_time"):
            raise ValueError(f"unit needs by: time or by: within_time, received by: {self.by}")
        if self.gap and self.by != "time":
            raise ValueError(f"gap needs by: time, received by: {self.by}")
        return self

    def parts(self) -> dict[str, int | tuple[str, ...]]:
        """Return split name → part, in the order train, eval, test."""
        parts = {"train": self.train, "eval": self.eval, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def names(self) -> list[str]:
        """Return the names of the splits."""
        return list(self.parts())


class BadRowsConfig(Section):
    """What happens to bad rows. A row is bad if it has too few fields, text that cannot be decoded, a value of a wrong
    type, or a value that is too large.
    """

    action: Literal["quarantine", "fail"] = "quarantine"
    """`quarantine` writes bad rows to a file in the examples' folder. `fail` fails the run if there is a bad row."""
    max_fraction: float = Field(default=0.001, ge=0, le=1)
    """Maximum share of bad rows. With a larger share, the run fails."""
    max_cell_bytes: PositiveInt = 10_000_000
    """Maximum bytes of a value. A row with a larger text or binary value is bad. Images have a separate limit."""


class SpansConfig(Section):
    """The spans to read from a path with {SPAN}, or with {YYYY}, {MM} and {DD}. The span of a date is the number of
    days since 1970.
    """

    latest: PositiveInt = 1
    """Number of spans to read, counted back from the newest span. Missing spans are skipped."""
    start: NonNegativeInt | None = None
    """First span to read: with `end`, instead of the newest spans; without `end`, earlier spans are not read."""
    end: NonNegativeInt | None = None
    """Last span to read."""

    @model_validator(mode="after")
    def _check_order(self) -> SpansConfig:
        if self.end is not None and (self.start is None or self.start > self.end):
            raise ValueError(f"end needs a start that is not after it, received {self.start} and {self.end}")
        if self.end is not None and "latest" in self.model_fields_set:
            raise ValueError("give either latest, or start and end")
        return self


def _as_sample(value: object) -> object:
    return {"fraction": value} if isinstance(value, float | int) else value


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class RowsConfig(Section):
    """How rows are read and assigned to splits."""

    format: Format | None = None
    """Format of the data. By default it is inferred from the files at `path`."""
    csv: CsvConfig = CsvConfig()
    """Format of text files."""
    tfrecord: TfrecordConfig = TfrecordConfig()
    """Content of TFRecord files."""
    images: ImagesConfig = ImagesConfig()
    """Where images are, and which images are accepted. A row with another image is bad."""
    bigquery: BigqueryConfig | None = None
    """Query for rows from BigQuery, instead of `path`."""
    join: tuple[JoinConfig, ...] = ()
    """Side tables whose columns are added to the rows, in this order. Later steps, such as `where`, `split` and
    `windows`, use added columns as the columns of the files. A later join may use columns of an earlier join."""
    columns: tuple[str, ...] = ()
    """Columns to ingest. By default all. Other columns of Parquet files are not read at all."""
    types: dict[str, ValueType] = Field(default_factory=dict)
    """Column name → type, such as `zip: bytes`, for columns whose type should not be inferred. A row with another value
    is bad."""
    split: SplitConfig = SplitConfig(train=2, eval=1)
    """How rows are assigned to training and evaluation."""
    bad_rows: BadRowsConfig = BadRowsConfig()
    """What happens to rows that cannot be ingested."""


SAMPLING_WEIGHT = "sampling_weight"
"""The column of weights that `data.sample.label` adds."""


class SampleConfig(Section):
    """The share of the rows to use. Rows are chosen by a hash of their values, so equal rows are chosen together."""

    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of all rows. `sample: 0.1` is short for it."""
    label: dict[LabelValue, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """Value of the label → share of its rows, by default 1, such as `{0: 0.1}` if the label is rarely 1. The column
    `sampling_weight`, which then is `data.weight`, contains the inverse of the share. Loss, metrics and predicted
    probabilities are therefore those of all rows."""


class SamplePart(Section):
    """The rows of one value of the label."""

    condition: str
    """A condition of `data.where`."""
    is_negated: bool
    """Whether the part contains the rows that do not fulfil the condition."""
    share: float
    """Share of the rows to keep."""


class IngestedSample(Section):
    """Which rows are kept."""

    fraction: float
    parts: tuple[SamplePart, ...]


class IngestConfig(RowsConfig):
    """The settings that the examples depend on; with the files they are the cache key of ExampleGen."""

    where: str | None = None
    """Condition of the rows that are written."""
    sample: IngestedSample | None = None
    """Which of these rows are written. None for all."""
    windows: IngestedWindows | None = None
    """Windows of time series. None if the rows of the files are written."""
    unhashed: tuple[str, ...] = ()
    """Columns that the hash of whole rows ignores: the columns of the labels and the weight. The data may lack them."""


class DataConfig(RowsConfig):
    """The data: its files, their format, and what to predict."""

    path: Texts = ()
    """A file, a folder, a pattern such as data/trips/*.csv or data/{SPAN}/*.csv, or a list of these. Paths are local or
    remote (gs://bucket/trips/*.csv, s3://…, az://…)."""
    remedy: str | None = None
    """How to generate missing data, such as `run make data`. The error about a missing path quotes this text."""
    spans: SpansConfig = SpansConfig()
    """Spans to read, if the path contains {SPAN} or a date."""
    label: str | None = Field(default=None, min_length=1)
    """What to predict: a column (or its header), or an expression of columns such as `tips > 0.2 * fare`."""
    labels: dict[LabelName, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Several labels that a single model predicts, instead of `label`: name → column or expression, as in
    `{click: clicked, purchase: price > 0}`. The name of a label is the suffix of the model's outputs, as in
    `probability_click`, and the prefix of metrics, as in `click/auc`."""
    event: str | None = Field(default=None, min_length=1)
    """survival: A column, or an expression such as `status == 'churned'`, that is 1 if the event happened at the time
    in the label, and 0 if the row was only observed until then."""
    intervals: int = Field(default=20, ge=2, le=200)
    """survival: Maximum number of intervals of time with a constant hazard each. They contain about the same number of
    events of the training split."""
    task: Task = "binary"
    """Kind of prediction: `binary` predicts one of two classes, `multiclass` one of several classes, `multilabel` any
    number of several classes, `regression` a number, `survival` the time until an event that has not happened yet in
    some rows, `retrieval` which of all items fit a user or another query, and `anomaly` how unusual a row is. For
    `retrieval`, a row with label 1 is an interaction of a query with an item; rows with label 0 are ignored in the loss
    and in the metrics. For `anomaly`, the label is optional. It is 1 for anomalies, and is only used in the evaluation.
    """
    classes: ClassSetConfig = ClassSetConfig()
    """How the task multilabel reads the classes of a row from the column of the label."""
    where: str | None = None
    """Condition that rows fulfil to be used, such as `fare > 0 and payment in ('Cash', 'Card')`; the grammar is that of
    labels. Other rows are counted and left out before the data is split. A comparison with a missing value is not
    fulfilled. Prediction and monitoring read all rows."""
    sample: Annotated[SampleConfig, BeforeValidator(_as_sample)] = SampleConfig()
    windows: WindowsConfig | None = None
    weight: str | None = None
    """Column with the weight of every row, a number of at least 0. A row of weight 2 counts as two rows in statistics,
    in the loss and in the metrics. The column is not a feature unless `features` lists it, and prediction requests do
    not need it."""
    examples_format: Literal["auto", "parquet", "tfrecord"] = "auto"
    """File format of the examples. `parquet` stores columns. `tfrecord` stores tf.Examples, row by row, which TFX's own
    components can read. `auto` selects `parquet` unless a node of the pipeline can only read `tfrecord`; the log names
    that node."""

    @model_validator(mode="before")
    @classmethod
    def _set_weight(cls, values: Any) -> Any:
        sample = values.get("sample") if isinstance(values, dict) else None
        if not isinstance(sample, dict) or not sample.get("label"):
            return values
        if values.get("weight") not in (None, SAMPLING_WEIGHT):
            raise ValueError(f"weight: expected none beside sample.label, received {values['weight']!r}; remove one")
        return {**values, "weight": SAMPLING_WEIGHT}

    @model_validator(mode="before")
    @classmethod
    def _set_split(cls, values: Any) -> Any:
        return set_split(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_sample(self) -> DataConfig:
        values = self.sample.label
        if not values:
            return self
        if self.label is None or self.task not in ("binary", "multiclass"):
            raise ValueError(
                "sample.label: expected one label with task binary or multiclass, received "
                f"{'several labels' if self.label is None else self.task}; set sample.fraction"
            )
        is_column = expression.parse(self.label).is_column
        if not is_column and (other := sorted(values.keys() - {"0", "1"})):
            raise ValueError(f"sample.label: expected the values 0 and 1 of {self.label!r}, received {other[0]!r}")
        return self

    @model_validator(mode="after")
    def _check_labels(self) -> DataConfig:
        if self.task == "anomaly" and self.label is None and not self.labels:
            return self
        if (self.label is None) != bool(self.labels):
            received = "both" if self.labels else "neither"
            raise ValueError(f"expected a label, or several labels by name, received {received}")
        if len(self.labels) == 1:
            raise ValueError(f"labels: expected two or more, received only {next(iter(self.labels))}; use label")
        return self

    @model_validator(mode="after")
    def _check_event(self) -> DataConfig:
        if (self.task == "survival") is (self.event is None):
            received = f"{self.task} with {self.event!r}; remove event" if self.event else "none; add it"
            expected = "task survival" if self.event else "an event with task survival"
            raise ValueError(f"event: expected {expected}, received {received}")
        if self.task != "survival" and self.intervals != DataConfig.model_fields["intervals"].default:
            raise ValueError(f"intervals: expected task survival, received {self.task}; remove intervals")
        return self

    @model_validator(mode="after")
    def _check_classes(self) -> DataConfig:
        if self.task != "multilabel" and self.classes != ClassSetConfig():
            raise ValueError(f"classes: expected task multilabel, received {self.task}; remove classes")
        return self

    @property
    def columns_of_where(self) -> tuple[str, ...]:
        """The columns that `where` reads."""
        return () if self.where is None else expression.parse_condition(self.where)[0].columns

    @field_validator("where")
    @classmethod
    def _check_condition(cls, value: str | None) -> str | None:
        if value is not None:
            expression.parse_condition(value)
        return value

    @property
    def declared_labels(self) -> tuple[expression.Label, ...]:
        """The labels, in the order of the config. Without a label, a label without a text; task anomaly only."""
        if self.label is None and not self.labels:
            return (expression.Label(""),)
        single = () if self.label is None else (expression.Label(self.label, event=self.event or ""),)
        return (*single, *(expression.Label(text, name) for name, text in self.labels.items()))

    @model_validator(mode="after")
    def _check_source(self) -> DataConfig:
        queried = self.bigquery is not None
        if (self.format == "bigquery") > queried or queried > (self.format in (None, "bigquery")):
            raise ValueError("expected both format: bigquery and a bigquery section with the query, or neither")
        if queried == bool(self.path):
            raise ValueError("expected a path, or a bigquery section with a query, and not both")
        if queried and self.images.path_column is not None:
            raise ValueError("images.path_column needs a table in files, not a BigQuery query; remove it")
        if self.join and (queried or self.format in ("tfrecord", "images")):
            received = (
                "a BigQuery query; join the tables in the query" if queried else f"{self.format} files; remove it"
            )
            raise ValueError(f"join: expected CSV or Parquet files, received {received}")
        if queried and self.split.by == "files":
            raise ValueError("split.by: files needs files, not a BigQuery query; set another method")
        check_windows(self)
        return self

    @property
    def places(self) -> list[tuple[str, str]]:
        """The locations of the data's files, as (field of the config, path or URL)."""
        places = [("data.path", path) for path in self.path]
        places += [(f"data.join[{at}].path", path) for at, join in enumerate(self.join) for path in join.path]
        return [*places, *([("data.images.folder", folder)] if (folder := self.images.folder) else [])]

    def ingest(self, format_: Format) -> IngestConfig:
        """Return the part of the section that the examples depend on, which is the cache key.

        It does not depend on the task. It depends on label and weight only if rows are split by their hash.

        Args:
          format_: Format of the data.
        """
        fields = {name: getattr(self, name) for name in RowsConfig.model_fields if name != "format"}
        unhashed = tuple(sorted(self._target_columns())) if self.split.by in ("hash", "group") else ()
        fields["join"] = tuple(join.with_absolute_path() for join in self.join)
        fields |= {"where": self.where, "sample": self._ingested_sample(), "windows": self.ingested_windows}
        return IngestConfig(format=format_, unhashed=unhashed, **fields)

    @property
    def ingested_windows(self) -> IngestedWindows | None:
        """The windows with the columns that they need; None if the rows of the files are written."""
        return check_windows(self)

    def _ingested_sample(self) -> IngestedSample | None:
        if self.sample == SampleConfig():
            return None
        parts = []
        for value, share in self.sample.label.items():
            label = expression.parse(self.label or "")
            if label.is_column:
                other = value if _is_number(value) else repr(value)
                condition, is_negated = f"{expression.column_text(label.columns[0])} == {other}", False
            else:
                condition, is_negated = label.text, value == "0"
            parts.append(SamplePart(condition=condition, is_negated=is_negated, share=share))
        return IngestedSample(fraction=self.sample.fraction, parts=tuple(parts))

    def _target_columns(self) -> set[str]:
        """Return the columns of the labels, and the column of the weight, which may depend on the label."""
        columns = (name for label in self.declared_labels for name in label.columns)
        return {*columns, *([self.weight] if self.weight else [])}
