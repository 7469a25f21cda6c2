"""Settings of the operations on histories: `sequence` and `time_gaps`.

A history is a column of lists, or of texts with separators, with the oldest event first. Several columns may describe
the same history, such as items, categories and times. They have one value per event.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.features.base_op import Dtype, Embedded

GAP_BUCKETS = 32
"""Number of buckets of `time_gaps`. The last bucket contains all gaps from 2**31 - 1 seconds (68 years) on."""


class OfHistory(Embedded):
    """An operation that returns one ID per event of a history, the latest event last."""

    separator: str = Field(default="|", min_length=1)
    """Separator of the values in a text. White space around a value is removed. An empty value is an event without
    ID."""
    max_values: int = Field(default=50, ge=2, le=10_000)
    """Maximum number of events of an example. The latest events are used."""
    along: str | None = None
    """Column with a `sequence`, if the values describe the events of that sequence, such as categories or times."""


class EventSequence(OfHistory):
    """The events of a history, such as the items that a user has seen, as IDs to embed, in order.

    Models with attention (`din`, `bst`) weight the events. Other models average their embeddings, which gives 0 without
    events.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["sequence"] = "sequence"
    of: str | None = None
    """Column with a `vocab` or a `hash`, if the events are earlier values of that column. Both columns then share IDs
    and embeddings, and the vocabulary is counted over both."""
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """Maximum size of the vocabulary, which contains the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of occurrences of a value in the training split. Rarer values are treated as unknown. With
    `buckets`, all rarer buckets share one ID, as in `hash`."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Number of IDs to which values outside the vocabulary are hashed."""
    buckets: int | None = Field(default=None, ge=2, le=1_000_000_000)
    """Number of IDs to which values are hashed, instead of a vocabulary. Several values may share an ID."""

    @model_validator(mode="after")
    def _check_options(self) -> EventSequence:
        # A recorded plan contains every field, so a field with its default value was not set by the user.
        fields = type(self).model_fields
        chosen = [
            name
            for name in (
                *("size", "min_frequency", "oov_buckets", "buckets", "embedding", "quotient_remainder", "composition"),
            )
            if getattr(self, name) != fields[name].default
        ]
        if self.of is not None and chosen:
            raise ValueError(f"expected of, or {chosen[0]}, received both: {self.of!r} defines IDs and embeddings")
        if self.buckets is not None and {"size", "oov_buckets"} & {*chosen}:
            raise ValueError("expected a vocabulary or buckets, received both")
        return self

    @property
    def rows(self) -> int:
        """Number of buckets plus one for padding; with `min_frequency`, one for rare buckets and one for padding."""
        if self.buckets is None:
            return self.oov_buckets + 1
        return 2 if self.min_frequency > 1 else self.buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        if self.buckets is None:
            return self.size
        return self.buckets if self.min_frequency > 1 else 0


class TimeGaps(OfHistory):
    """The time between the events and a reference time, as IDs to embed: the base-2 logarithm, rounded down."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["time_gaps"] = "time_gaps"
    until: str | None = None
    """Column with the reference time, an integer. By default, or if it is missing, the time of the last event."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    """Unit of the times."""

    @property
    def rows(self) -> int:
        """Number of buckets plus one for padding."""
        return GAP_BUCKETS + 1
