"""Settings of the operations on dates and times: `date_part` and `date_parts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from components.data.date_texts import Order, Unit
from components.features.base_op import Dtype, Embedded, Op
from components.features.holiday_days import check_region

Part = Literal["year", "month", "day", "weekday", "hour", "minute", "day_of_year", "holiday"]
Encoding = Literal["id", "cyclical"]


@dataclass(frozen=True)
class Span:
    """The range of a part of a date: `count` consecutive values that start at `first`."""

    first: int
    count: int


SPANS: dict[Part, Span] = {
    "month": Span(1, 12),
    "day": Span(1, 31),
    "weekday": Span(0, 7),
    "hour": Span(0, 24),
    "minute": Span(0, 60),
    "day_of_year": Span(1, 366),
    "holiday": Span(0, 2),
}
"""Part → range. The year is missing, because it is a number instead of an ID."""


class DatePart(Embedded):
    """A part of a date or time, as an ID to embed. The year is a number, normalised by z_score.

    An integer counts from 1970-01-01 UTC. A text is ISO 8601: `2024-03-01`, `2024-3-1 17:05`,
    `2024-03-01T17:05:00.123Z`, `2024-03-01T17:05:00+02:00`. Parts are in UTC. With `order`, a text is `31.12.2024`,
    `31/12/2024 17:05` or `12/31/2024 5:05 PM`. Offsets are `Z`, `UTC`, `GMT`, `+02`, `+0200` or `+02:00`. A text that
    is not a date counts as missing; a run warns if more than 1 % of a column's texts are not dates. Missing values have
    a separate ID; a missing year becomes 0, the mean.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["date_part"] = "date_part"
    part: Part
    """Part of the date. Monday is the first weekday. The feature is named after it, as in `pickup_weekday`."""
    unit: Unit = "seconds"
    """Unit of an integer."""
    order: Order = "ymd"
    """Order of day, month and year in a text. `ymd` is ISO 8601, also with `/` or `.` between them."""
    holidays: str | None = None
    """For the part `holiday`: whether the day is a public holiday there, by the ISO code of a country, such as `DE`, or
    of a part of it, such as `DE-BY`. The holidays of 1970 to 2050 are known, of some countries of fewer years (of
    Germany since 1991); other dates count as missing."""
    encode: Encoding = "id"
    """id: an ID to embed. cyclical: sin and cos of the part, so that 23:00 and 0:00 lie close together, as the feature
    `pickup_hour_cyclical`; a missing value becomes 0, 0. For all parts except year and holiday, which do not repeat."""

    @model_validator(mode="after")
    def _check_part(self) -> DatePart:
        if self.part == "year" and self.embedding is not None:
            raise ValueError("year is a number and has no embedding; remove embedding")
        _check_holidays((self.part,), self.holidays)
        _check_encoding((self.part,), self.encode, self.embedding)
        return _check_unit(self, (self.part,), self.unit)

    @property
    def suffix(self) -> str:
        """The part, and the encoding unless it is an ID."""
        return self.part if self.encode == "id" else f"{self.part}_{self.encode}"

    @property
    def is_id(self) -> bool:
        """Whether the feature is an ID, rather than numbers."""
        return self.part in SPANS and self.encode == "id"

    @property
    def rows(self) -> int:
        """Number of values of the part plus one for missing values; 0 if the feature is numbers."""
        return SPANS[self.part].count + 1 if self.is_id else 0


class DateParts(Op):
    """Several parts of a date: `{date_parts: [weekday, hour]}` abbreviates two operations `date_part`, which describes
    missing values.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["date_parts"] = "date_parts"
    parts: tuple[Part, ...]
    """Parts of the date. Every part becomes a feature."""
    unit: Unit = "seconds"
    """Unit of an integer."""
    order: Order = "ymd"
    """Order of day, month and year in a text; see `date_part`."""
    holidays: str | None = None
    """Country of the part `holiday`; see `date_part`."""
    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of the embeddings of the parts. By default the model chooses it by the number of IDs."""
    encode: Encoding = "id"
    """Form of all parts; see `date_part`."""

    @model_validator(mode="after")
    def _check_parts(self) -> DateParts:
        # Do not use min_length on the field, because pydantic would also report it for a misspelled part.
        if not self.parts:
            raise ValueError("expected at least one part, received none")
        _check_holidays(self.parts, self.holidays)
        _check_encoding(self.parts, self.encode, self.embedding)
        return _check_unit(self, self.parts, self.unit)

    def expand(self) -> tuple[Op, ...]:
        """Return one `date_part` per part."""
        widths = {part: self.embedding if part in SPANS else None for part in self.parts}
        return tuple(
            DatePart(
                part=part,
                unit=self.unit,
                order=self.order,
                holidays=self.holidays if part == "holiday" else None,
                embedding=widths[part],
                encode=self.encode,
            )
            for part in self.parts
        )


DateOp = TypeVar("DateOp", bound=Op)


def _check_holidays(parts: Sequence[Part], region: str | None) -> None:
    if ("holiday" in parts) != (region is not None):
        raise ValueError(
            "expected holidays, a country such as DE, for the part holiday; received none"
            if region is None
            else "holidays has an effect only with the part holiday; add the part, or remove it"
        )
    if region is not None:
        check_region(region)


def _check_encoding(parts: Sequence[Part], encode: Encoding, embedding: int | None) -> None:
    if encode == "id":
        return
    if others := [part for part in parts if part in ("year", "holiday")]:
        raise ValueError(f"encode: expected parts that repeat, received {others[0]}; give it another operation")
    if embedding is not None:
        raise ValueError("sin and cos have no embedding; remove embedding")


def _check_unit(op: DateOp, parts: Sequence[Part], unit: Unit) -> DateOp:
    for part in parts:
        if unit == "days" and part in ("hour", "minute"):
            raise ValueError(f"expected unit seconds or milliseconds for {part}, received days")
    return op
