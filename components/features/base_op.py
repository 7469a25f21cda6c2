"""The base classes of the feature operations' settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from components.config_section import Section

Dtype = Literal["int", "float", "bytes"]


class Op(Section):
    """Settings of a feature operation: `op` is its name in the config, `takes` the dtypes that it accepts."""

    takes: ClassVar[frozenset[Dtype]]
    op: str

    @property
    def suffix(self) -> str:
        """The last part of the feature's name."""
        return self.op

    def expanded(self) -> tuple[Op, ...]:
        """Returns the operations that this one abbreviates; each makes one feature."""
        return (self,)


class Embedded(Op):
    """An operation whose output is ids, which the model embeds."""

    embedding: int | None = Field(default=None, ge=1, le=4096)
    """Width of the embedding; without it, the model decides by the number of ids."""

    @property
    def rows(self) -> int:
        """Rows of the embedding table that follow from the config, that is, without a vocabulary's entries."""
        raise NotImplementedError

    @property
    def most_entries(self) -> int:
        """The greatest number of entries of its vocabulary, each with a row of the embedding table; 0 without one."""
        return 0
