"""Settings of the operations on texts and lists of values: `multi_hot`, `split` and `text`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.features.base_op import Dtype, Embedded, Op


class MultiHot(Op):
    """A number for each entry of a vocabulary of the training split: 1 if it is among the example's values, else 0.

    An example has several values if the text holds several (`red|green`), if the column holds lists, or both. The width
    is `size` + `oov_buckets`, even if the training split has fewer values. A missing value is 0 in all of them.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["multi_hot"] = "multi_hot"
    size: int = Field(default=100, ge=1, le=100_000)
    """Size of the vocabulary: the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Values that occur fewer times in the training split are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=100_000)
    """Numbers over which values outside the vocabulary are hashed."""
    separator: str = Field(default="|", min_length=1)
    """Separates the values in a text. White space around a value is removed, and empty values are dropped."""


class Split(Embedded):
    """The ranks of the example's values in a vocabulary of the training split, as ids to embed; averaged.

    An example has several values if the text holds several (`red|green`), if the column holds lists, or both. If all
    are missing, the mean is 0.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["split"] = "split"
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """Size of the vocabulary: the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Values that occur fewer times in the training split are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Ids over which values outside the vocabulary are hashed."""
    separator: str = Field(default="|", min_length=1)
    """Separates the values in a text. White space around a value is removed, and empty values are dropped."""
    max_values: int = Field(default=16, ge=2, le=10_000)
    """Greatest number of values of an example; further ones are dropped."""

    @property
    def rows(self) -> int:
        """A row per bucket of unknown values, and padding."""
        return self.oov_buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.size


class Text(Embedded):
    """The words of a text and their n-grams, hashed or looked up in a vocabulary, as ids to embed; averaged.

    A word is a sequence of letters and digits of any script; all other characters, and bytes that are not UTF-8,
    separate words. If a text is missing or has no word, the mean is 0.
    """

    takes = frozenset[Dtype]({"bytes"})
    op: Literal["text"] = "text"
    lower: bool = True
    """Whether texts are converted to lower case."""
    ngrams: int = Field(default=2, ge=1, le=3)
    """The longest n-grams: 1: words; 2: also pairs of words; 3: also triples."""
    buckets: int = Field(default=10_000, ge=2, le=1_000_000_000)
    """Number of ids that words and n-grams are hashed to; two may share one."""
    vocabulary: int | None = Field(default=None, ge=1, le=50_000_000)
    """Instead of hashing: size of a vocabulary of the most frequent words and n-grams of the training split. All others
    share one id."""
    max_values: int = Field(default=64, ge=2, le=100_000)
    """Words and n-grams of an example that are used: first the words of each text. Further ones are dropped."""

    @model_validator(mode="after")
    def _one_way(self) -> Text:
        # A recorded plan has every field; a default value is no choice of the user.
        if self.vocabulary is not None and self.buckets != type(self).model_fields["buckets"].default:
            raise ValueError("expected buckets or vocabulary, received both")
        return self

    @property
    def rows(self) -> int:
        """A row per bucket, or one for unknown words; and padding."""
        return 2 if self.vocabulary is not None else self.buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.vocabulary or 0
