"""Settings of the operations on histories: `sequence` and `time_gaps`.

A history is a column of lists, or of texts with separators, with the oldest event first. Columns of one history, such
as items, their categories and the times, have a value for each event.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.features.base_op import Dtype, Embedded

GAP_BUCKETS = 32
"""Buckets of `time_gaps`; the last one has all gaps from 2**31 - 1 seconds (68 years) on."""


class OfHistory(Embedded):
    """An operation that has an id for each event of a history, the latest ones last."""

    separator: str = Field(default="|", min_length=1)
    """Separates the values in a text. White space around a value is removed; an empty value is an event without id."""
    max_values: int = Field(default=50, ge=2, le=10_000)
    """Greatest number of events of an example; of more, the latest are used."""
    along: str | None = None
    """The column with the `sequence` whose events these values belong to: their categories, or their times."""


class EventSequence(OfHistory):
    """The events of a history as ids to embed, in their order: what a user has seen before.

    Models with attention (`din`, `bst`) weight the events; in others their embeddings are averaged. Without events the
    mean is 0.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["sequence"] = "sequence"
    of: str | None = None
    """The column of which these are earlier values, with a `vocab` or a `hash`: both share its ids and its embeddings,
    and the vocabulary is counted in both."""
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """Size of the vocabulary: the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Values that occur fewer times in the training split are treated as unknown; with `buckets`, those of such buckets
    share one id, as in `hash`."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Ids over which values outside the vocabulary are hashed."""
    buckets: int | None = Field(default=None, ge=2, le=1_000_000_000)
    """Instead of a vocabulary: number of ids that values are hashed to; two may share one."""

    @model_validator(mode="after")
    def _one_way(self) -> EventSequence:
        # A recorded plan has every field; a default value is no choice of the user.
        fields = type(self).model_fields
        chosen = [
            name
            for name in (
                *("size", "min_frequency", "oov_buckets", "buckets", "embedding", "quotient_remainder", "composition"),
            )
            if getattr(self, name) != fields[name].default
        ]
        if self.of is not None and chosen:
            raise ValueError(f"expected of, or {chosen[0]}, received both: ids and embeddings are those of {self.of!r}")
        if self.buckets is not None and {"size", "oov_buckets"} & {*chosen}:
            raise ValueError("expected a vocabulary or buckets, received both")
        return self

    @property
    def rows(self) -> int:
        """A row per bucket, and padding; with a vocabulary of buckets, one for the rare ones, and padding."""
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
    """How long before a time each event was, as ids to embed: the gap's logarithm to the base 2, rounded down."""

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["time_gaps"] = "time_gaps"
    until: str | None = None
    """The column with that time, a whole number; without it, or where it is missing, the time of the last event."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    """The unit of the times."""

    @property
    def rows(self) -> int:
        """A row per bucket, and padding."""
        return GAP_BUCKETS + 1
