"""Settings for pretrained vectors: the operation `vectors`, and operations whose embeddings begin with such vectors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from components.base.files import is_remote
from components.features.base_op import Dtype, Embedded, Op

MOST_BYTES = 256 << 20
"""Maximum size of the numbers of a file in bytes, because they become a constant of the transform graph."""


class Vectors(Op):
    """The pretrained vector of the value, from a file. Training does not change it.

    A value that the file lacks, and a missing value, is 0 in all numbers. With `words`, the feature is the mean vector
    of those words of a text that the file contains, and 0 if it contains none of them. To train vectors further, use
    `vectors` of the operation `vocab`, `split` or `text`.
    """

    takes = frozenset[Dtype]({"int", "bytes"})
    op: Literal["vectors"] = "vectors"
    path: str
    """File with the vectors. `.npz`: the arrays `values`, of texts or whole numbers, and `vectors`, of numbers, shape
    [values, width]. Any other file is a text as word2vec, GloVe and fastText write it: a line per value, the value and
    its numbers separated by spaces; a first line with two numbers is skipped. Of equal values, the first counts."""
    width: int = Field(ge=1, le=4096)
    """Numbers per value."""
    words: bool = False
    """Whether the values are texts, and the file contains vectors of words. A word is a sequence of letters and digits,
    as in `text`."""
    lower: bool = True
    """With `words`: whether texts are converted to lower case."""

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        _check_local(self.path)
        return self


class Pretrained(Embedded):
    """An operation with a vocabulary, whose embeddings may begin with pretrained vectors."""

    vectors: str | None = None
    """File with pretrained vectors, in a format of the operation `vectors`. The embedding of a value in the file begins
    with its vector, and is trained further. All other values begin at random. Set `embedding` to the width."""

    @model_validator(mode="after")
    def _check_vectors(self) -> Self:
        if self.vectors is None:
            return self
        _check_local(self.vectors)
        if self.embedding is None:
            raise ValueError("vectors needs embedding, the numbers per value in the file, such as embedding: 50")
        if self.quotient_remainder is not None:
            raise ValueError("vectors needs a separate row per value; remove quotient_remainder")
        return self


def list_files(op: Op) -> list[tuple[str, str, int]]:
    """Return field, path and width of the files of vectors that an operation reads."""
    if isinstance(op, Vectors):
        return [("path", op.path, op.width)]
    if isinstance(op, Pretrained) and op.vectors is not None:
        return [("vectors", op.vectors, int(op.embedding or 0))]
    return []


def _check_local(path: str) -> None:
    if is_remote(path):
        raise ValueError(f"expected a file of this machine, received {path}; copy it here")
