"""Settings of the operations on dates and times: `date_part` and `date_parts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from components.features.base_op import Dtype, Embedded, Op

Part = Literal["year", "month", "day", "weekday", "hour", "minute", "day_of_year"]
Unit = Literal["seconds", "milliseconds", "days"]
Order = Literal["ymd", "dmy", "mdy"]

_YEAR, _MONTH, _DAY = r"(?P<year>\d{4})", r"(?P<month>0[1-9]|1[0-2])", r"(?P<day>0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?:[0-5]\d|60)(?:[.,]\d+)?)?"
_ISO = (
    rf"{_YEAR}[-/.]{_MONTH}[-/.]{_DAY}"
    rf"(?:[ Tt]{_CLOCK}(?:[Zz]| ?UTC| ?(?:\+|(-))([01]\d|2[0-3]):?([0-5]\d))?)?"
)
_SHORT_MONTH, _SHORT_DAY = _MONTH.replace(">0[", ">0?["), _DAY.replace(">0[", ">0?[")
_LOCAL_CLOCK = rf"(?:(?:,? |T){_CLOCK.replace('>[01]', '>[01]?')}(?: ?[AaPp][Mm])?)?"
FORMS: dict[Order, tuple[str, str]] = {
    "ymd": (_ISO, r"\1,\2,\3,0\4,0\5,\60\7,\60\8"),
    "dmy": (rf"{_SHORT_DAY}[-/.]{_SHORT_MONTH}[-/.]{_YEAR}{_LOCAL_CLOCK}", r"\3,\2,\1,0\4,0\5,0,0"),
    "mdy": (rf"{_SHORT_MONTH}[-/.]{_SHORT_DAY}[-/.]{_YEAR}{_LOCAL_CLOCK}", r"\3,\1,\2,0\4,0\5,0,0"),
}
"""Order → the form of a date; and from its groups: year, month, day, hour, minute, and the hours and minutes of the
offset from UTC, each with its sign."""


@dataclass(frozen=True)
class Span:
    """The range of a part of a date: `count` consecutive values, beginning with `first`."""

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
"""Part → range. A year is a number, so it has none."""


class DatePart(Embedded):
    """A part of a date or time, as an id to embed; the year as a number, by z_score.

    An integer counts from 1970-01-01 UTC. A text is ISO 8601: `2024-03-01`, `2024-03-01 17:05`,
    `2024-03-01T17:05:00.123Z`, `2024-03-01T17:05:00+02:00`; parts are in UTC. With `order`, a text is `31.12.2024`,
    `31/12/2024 17:05` or `12/31/2024 5:05 PM`. A text that is not a date counts as missing. Missing has an id of its
    own; a missing year becomes the mean, 0.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["date_part"] = "date_part"
    part: Part
    """Which part; Monday is the first weekday. It is part of the feature's name, as in `pickup_weekday`."""
    unit: Unit = "seconds"
    """Unit of an integer."""
    order: Order = "ymd"
    """Order of day, month and year in a text; ymd is ISO 8601, also with `/` or `.` between them."""

    @model_validator(mode="after")
    def _unit_has_part(self) -> DatePart:
        if self.part == "year" and self.embedding is not None:
            raise ValueError("year is a number and has no embedding; remove embedding")
        return _check_unit(self, (self.part,), self.unit)

    @property
    def suffix(self) -> str:
        """The part."""
        return self.part

    @property
    def rows(self) -> int:
        """A row per value of the part, and missing; a year has no table."""
        return SPANS[self.part].count + 1 if self.part in SPANS else 0


class DateParts(Op):
    """Several parts of a date: `{date_parts: [weekday, hour]}` abbreviates two date_part. Missing is as there."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["date_parts"] = "date_parts"
    parts: tuple[Part, ...]
    """Which parts; each makes a feature of its own."""
    unit: Unit = "seconds"
    """Unit of an integer."""
    order: Order = "ymd"
    """Order of day, month and year in a text; see date_part."""
    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of each part's embedding; without it, the model decides by the number of ids."""

    @model_validator(mode="after")
    def _unit_has_parts(self) -> DateParts:
        # With min_length on the field, pydantic would also report it for a misspelled part.
        if not self.parts:
            raise ValueError("expected at least one part, received none")
        return _check_unit(self, self.parts, self.unit)

    def expanded(self) -> tuple[Op, ...]:
        """A date_part for each part."""
        widths = {part: self.embedding if part in SPANS else None for part in self.parts}
        return tuple(
            DatePart(part=part, unit=self.unit, order=self.order, embedding=widths[part]) for part in self.parts
        )


DateOp = TypeVar("DateOp", bound=Op)


def _check_unit(op: DateOp, parts: Sequence[Part], unit: Unit) -> DateOp:
    for part in parts:
        if unit == "days" and part in ("hour", "minute"):
            raise ValueError(f"expected unit seconds or milliseconds for {part}, received days")
    return op
