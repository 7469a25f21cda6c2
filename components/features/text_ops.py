"""Settings of the operations on texts and lists of values: `multi_hot`, `split` and `text`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.features.base_op import Dtype, Op
from components.features.vector_ops import Pretrained


class MultiHot(Op):
    """One number per entry of a vocabulary of the training split: 1 if the example has the value, otherwise 0.

    An example has several values if the text contains several (`red|green`), if the column contains lists, or both. The
    width is `size` + `oov_buckets`, even if the training split has fewer values. A missing value is 0 everywhere.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["multi_hot"] = "multi_hot"
    size: int = Field(default=100, ge=1, le=100_000)
    """Maximum size of the vocabulary, which contains the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of occurrences of a value in the training split. Rarer values are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=100_000)
    """Number of outputs to which values outside the vocabulary are hashed."""
    separator: str = Field(default="|", min_length=1)
    """Separator of the values in a text. White space around a value is removed, and empty values are dropped."""


class Split(Pretrained):
    """The ranks of the example's values in a vocabulary of the training split, as IDs whose embeddings are averaged.

    An example has several values if the text contains several (`red|green`), if the column contains lists, or both. If
    all values are missing, the mean is 0.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["split"] = "split"
    size: int = Field(default=10_000, ge=1, le=50_000_000)
    """Maximum size of the vocabulary, which contains the most frequent values."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of occurrences of a value in the training split. Rarer values are treated as unknown."""
    oov_buckets: int = Field(default=1, ge=1, le=1_000_000)
    """Number of IDs to which values outside the vocabulary are hashed."""
    separator: str = Field(default="|", min_length=1)
    """Separator of the values in a text. White space around a value is removed, and empty values are dropped."""
    max_values: int = Field(default=16, ge=2, le=10_000)
    """Maximum number of values of an example. Further values are dropped."""

    @property
    def rows(self) -> int:
        """Number of buckets of unknown values plus one for padding."""
        return self.oov_buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.size


class Text(Pretrained):
    """The words and n-grams of a text, hashed or looked up in a vocabulary, as IDs whose embeddings are averaged.

    A word is a sequence of letters and digits of any script. All other characters, and bytes that are not UTF-8,
    separate words. If a text is missing or does not contain words, the mean is 0.

    With `weighting: tf_idf`, the embeddings are added with weights instead: the weight of a word is its number of
    occurrences in the text, times `1 + ln((1 + n) / (1 + m))`, where n is the number of training rows with words, and m
    the number of them that contain the word. The weights of a text are divided by the square root of the sum of their
    squares (Salton and Buckley 1988, Term-weighting Approaches in Automatic Text Retrieval). Words that the vocabulary
    lacks are ignored. This equals the default of scikit-learn's TfidfVectorizer.
    """

    takes = frozenset[Dtype]({"bytes"})
    op: Literal["text"] = "text"
    lower: bool = True
    """Whether texts are converted to lower case."""
    ngrams: int = Field(default=2, ge=1, le=3)
    """Maximum length of n-grams: 1 for words only, 2 to add pairs of words, 3 to add triples."""
    buckets: int = Field(default=10_000, ge=2, le=1_000_000_000)
    """Number of IDs to which words and n-grams are hashed. Several may share an ID."""
    vocabulary: int | None = Field(default=None, ge=1, le=50_000_000)
    """Maximum size of a vocabulary of the most frequent words and n-grams of the training split, instead of hashing.
    All other words share one ID."""
    max_values: int = Field(default=64, ge=2, le=100_000)
    """Maximum number of words and n-grams of an example, where words come first. Further values are dropped. With
    `weighting`, a word counts once, however often it occurs, and only if the vocabulary contains it."""
    weighting: Literal["tf_idf"] | None = None
    """tf_idf: frequent words of a text that few training rows contain have the greatest weights; needs `vocabulary`,
    which then contains the words in most rows. By default, all words have the same weight."""

    @model_validator(mode="after")
    def _check_options(self) -> Text:
        # A recorded plan contains every field, so a field with its default value was not set by the user.
        if self.vocabulary is not None and self.buckets != type(self).model_fields["buckets"].default:
            raise ValueError("expected buckets or vocabulary, received both")
        if self.weighting is not None and self.vocabulary is None:
            raise ValueError("expected vocabulary with weighting: tf_idf, received none; set vocabulary, such as 10000")
        if self.vectors is not None and self.vocabulary is None:
            raise ValueError("expected vocabulary with vectors, received none; set vocabulary, such as 10000")
        return self

    @property
    def rows(self) -> int:
        """Number of buckets, or one for unknown words unless they are ignored, plus one for padding."""
        if self.weighting is not None:
            return 1
        return 2 if self.vocabulary is not None else self.buckets + 1

    @property
    def most_entries(self) -> int:
        """See Embedded."""
        return self.vocabulary or 0
