"""The texts of a column of dates that are not dates, as Transform counted them in the training split."""

from __future__ import annotations

from dataclasses import dataclass

WARNING_SHARE = 0.01
"""Share of texts that are not dates, above which a run warns that they count as missing."""


@dataclass(frozen=True)
class UnparsedDates:
    """The texts of a column that are not dates.

    Attributes:
      column: Name of the raw column.
      order: Order of day, month and year that date_part expects.
      texts: Number of texts in the training split.
      unparsed: Number of texts that are not dates.
      example: Example of a text that is not a date, truncated to 60 bytes.
    """

    column: str
    order: str
    texts: int
    unparsed: int
    example: str

    @property
    def is_high(self) -> bool:
        """Whether a run warns about the texts."""
        return self.unparsed > WARNING_SHARE * self.texts

    def __str__(self) -> str:
        share = self.unparsed / max(self.texts, 1)
        return (
            f"{self.column}: {self.unparsed:,} of {self.texts:,} texts ({share:.1%}), such as {self.example!r}, are "
            f"not dates with order {self.order} and count as missing; correct them, or set order of date_part"
        )
