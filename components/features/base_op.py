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
    def is_columnar(self) -> bool:
        """Whether only the columnar executor of Transform computes the statistics of the operation, not TFX's."""
        return False

    @property
    def suffix(self) -> str:
        """The last part of the feature's name."""
        return self.op

    def expand(self) -> tuple[Op, ...]:
        """Return the operations that this operation abbreviates. Every returned operation creates one feature."""
        return (self,)


class Embedded(Op):
    """An operation whose output is IDs, which the model embeds."""

    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of the embedding. By default the model chooses it by the number of IDs."""
    quotient_remainder: int | None = Field(default=None, ge=2, le=1_000_000)
    """For tables that do not fit into memory. Each ID's embedding combines a row selected by its remainder with one of
    n rows selected by its quotient, where n is this number. The table shrinks by about a factor of n, and different
    IDs still have different embeddings (Shi et al. 2020, Compositional Embeddings Using Complementary Partitions)."""
    composition: Literal["product", "sum"] | None = None
    """With `quotient_remainder`: how the two rows are combined, element by element. By default product."""

    @model_validator(mode="after")
    def _check_composition(self) -> Self:
        if self.composition is not None and self.quotient_remainder is None:
            raise ValueError("composition has an effect only with quotient_remainder; remove it")
        return self

    @property
    def rows(self) -> int:
        """The number of IDs that follows from the config, without the entries of a vocabulary."""
        raise NotImplementedError

    @property
    def most_entries(self) -> int:
        """The maximum number of entries of the vocabulary; 0 if the operation does not use a vocabulary."""
        return 0
