"""The `data` section of the config: where the rows lie, how they are written, and what is to be learned from them."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from components.section import Section, Task

Format = Literal["csv", "images"]
"""`csv`: delimited text with a header. `images`: a folder for each class, holding PNG or JPEG files."""

ValueType = Literal["int", "float", "bytes"]
"""The three kinds of value that a tf.Example can hold: int64, float32, bytes."""


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


Sign = Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_ascii_sign)]


class CsvConfig(Section):
    """How the rows are written in the text files. The first row is always the header."""

    delimiter: Sign = ","
    """The character between two fields."""
    quote: Sign = '"'
    """The character around a field that holds delimiters, quotes (doubled) or line breaks."""
    null_values: tuple[str, ...] = ("",)
    """Fields that mean "missing". The empty field always does."""
    encoding: Annotated[str, AfterValidator(_known_encoding)] = "utf-8"
    """How the text is encoded. The examples hold UTF-8 in any case."""

    @model_validator(mode="after")
    def _signs_differ(self) -> CsvConfig:
        if self.delimiter == self.quote:
            raise ValueError(f"expected a delimiter and a quote that differ, received {self.quote!r} for both")
        return self


class SplitConfig(Section):
    """The share of each split, in hash buckets: train 8, eval 2 keeps a fifth of the rows for evaluation."""

    train: PositiveInt
    """Buckets of the rows that the model learns from."""
    eval: PositiveInt
    """Buckets of the rows that the model is judged on."""
    test: PositiveInt | None = None
    """Buckets of rows that neither training nor evaluation sees; left out if not given."""

    def buckets(self) -> dict[str, int]:
        """The buckets of each split, in the order in which they share the range of the hash."""
        shares = {"train": self.train, "eval": self.eval, "test": self.test}
        return {name: share for name, share in shares.items() if share is not None}


class IngestConfig(Section):
    """What the examples depend on, besides the files: the cache key of ExampleGen."""

    format: Format | None = None
    """How the data is stored; found from what lies at `path` if not given."""
    csv: CsvConfig = CsvConfig()
    """How the text files are written."""
    split: SplitConfig = SplitConfig(train=2, eval=1)
    """How the rows are shared out between training and evaluation."""
    types: dict[str, ValueType] = Field(default_factory=dict)
    """Types of columns that are not to be found from the values, such as `zip: bytes`."""


class DataConfig(IngestConfig):
    """The data: its files, how they are read, and the task that they pose."""

    path: str = Field(min_length=1)
    """A file, a folder, or a pattern such as data/trips/*.csv; local, or remote such as gs://bucket/trips/*.csv."""
    label: str = Field(min_length=1)
    """What is to be predicted: a column, or an expression of columns such as `tips > 0.2 * fare`."""
    task: Task = "binary"
    """What kind of prediction: one of two classes, one of several, or a number."""

    def ingest(self, format_: Format) -> IngestConfig:
        """The part that the examples depend on; a new label or task leaves it, and so the cache, as it is."""
        return IngestConfig(format=format_, csv=self.csv, split=self.split, types=self.types)
