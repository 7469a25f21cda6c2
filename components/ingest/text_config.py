"""The `data.csv` section of the config: the format of text files."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from components.base.config_section import Section

NumberForm = Literal["thousands", "decimal_comma", "percent", "currency", "accounting"]
"""Form in which a text column writes numbers; see `CsvConfig.formats`."""


def _check_character(text: str) -> str:
    if not text.isascii() or text in "\r\n":
        raise ValueError(f"expected one ASCII character that is not a line break, received {text!r}")
    return text


def _check_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f"expected an encoding of Python, such as utf-8 or cp1252, received {name!r}") from None
    return name


Character = Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_check_character)]


class CsvConfig(Section):
    """Format of text files."""

    delimiter: Character = ","
    """The character between two fields."""
    quote: Character = '"'
    """The character around a field that holds delimiters, quotes (doubled) or line breaks."""
    null_values: tuple[str, ...] = ("",)
    """Fields that mean a missing value, in addition to the empty field."""
    encoding: Annotated[str, AfterValidator(_check_encoding)] = "utf-8"
    """The encoding of the text. The examples are always UTF-8."""
    decimal: Literal[".", ","] = "."
    """The decimal sign of numbers. With a comma, points separate thousands: `1.234,5`."""
    formats: dict[str, NumberForm] = Field(default_factory=dict)
    """Column name → form in which the column writes numbers, such as `price: currency`. `thousands`: 1,234.5.
    `decimal_comma`: 3,14 or 1.234,5. `percent`: 12 %, which becomes 0.12. `currency`: $1,200 or 5 €. `accounting`: as
    `currency`, and (123) is -123. A row with another text is bad. These columns are floats unless `types` says
    otherwise."""
    header: bool = True
    """Whether the first row contains the names of the columns. Otherwise they are named column_1, column_2, ..."""
    skip_initial_space: bool = False
    """Whether to remove spaces after a delimiter."""

    @model_validator(mode="after")
    def _check_signs(self) -> CsvConfig:
        if self.delimiter == self.quote:
            raise ValueError(f"expected a delimiter and a quote that differ, received {self.quote!r} for both")
        return self
