"""The base classes of the feature operations' settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from components.base.config_section import Section

Dtype = Literal["int", "float", "bytes"]


class Op(Section):
    """Settings of a feature operation: `op` is its name in the config, `takes` the dtypes that it accepts.

    `implementation` is the module that registers the functions of the operation, see components.features.operation. It
    is not imported with the config, because it imports TensorFlow.
    """

    takes: ClassVar[frozenset[Dtype]]
    implementation: ClassVar[str] = "components.features.transforms"
    op: str

    @property
    def suffix(self) -> str:
        """The last part of the feature's name."""
        return self.op

    def expanded(self) -> tuple[Op, ...]:
        """Return the operations that this one abbreviates; each makes one feature."""
        return (self,)


class Embedded(Op):
    """An operation whose output is ids, which the model embeds."""

    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of the embedding; without it, the model decides by the number of ids."""
    quotient_remainder: int | None = Field(default=None, ge=2, le=1_000_000)
    """Divides the rows of the embedding table by this number: the vector of an id is composed of a row for its
    remainder, which so many ids share, and one of this number of rows for its quotient (Shi et al. 2020, Compositional
    Embeddings Using Complementary Partitions). Every id keeps a vector of its own. For tables that do not fit."""
    composition: Literal["product", "sum"] | None = None
    """With `quotient_remainder`: how the two rows are composed, element by element; default: product."""

    @model_validator(mode="after")
    def _check_composition(self) -> Self:
        if self.composition is not None and self.quotient_remainder is None:
            raise ValueError("composition has an effect with quotient_remainder, received none; remove it")
        return self

    @property
    def rows(self) -> int:
        """The number of ids that follows from the config, that is, without a vocabulary's entries."""
        raise NotImplementedError

    @property
    def most_entries(self) -> int:
        """The greatest number of entries of its vocabulary, each with an id; 0 without one."""
        return 0
