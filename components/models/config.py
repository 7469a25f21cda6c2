"""The `model` section: which network reads the features."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from components.names import ImportPath
from components.section import Section


class ModelConfig(Section):
    """The network, or a run_fn of your own instead of it."""

    kind: Literal["wide_deep", "mlp", "dlrm"] = "wide_deep"
    """wide_deep: a linear model over ids beside a deep one (Cheng et al. 2016); mlp: the deep part alone;
    dlrm: dot products between embedded ids, and with the numbers (Naumov et al. 2019)."""
    hidden: tuple[PositiveInt, ...] = Field(default=(128, 64), min_length=1)
    """Units of each hidden layer, from the input up. dlrm has them twice: under the dot products, for the numbers, and
    above."""
    embedding: int = Field(default=16, ge=1, le=4096)
    """The widest embedding of an id; a column with few ids gets a narrower one. In dlrm all are this wide."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of hidden units dropped in training."""
    run_fn: ImportPath | None = None
    """A run_fn of your own, as stock TFX takes it: it builds, trains and exports the model itself."""

    @model_validator(mode="after")
    def _run_fn_alone(self) -> ModelConfig:
        # What is written out with its default, as a recorded plan is, asks for nothing.
        fields, chosen = type(self).model_fields, self.model_fields_set - {"run_fn"}
        ours = sorted(name for name in chosen if getattr(self, name) != fields[name].default)
        if self.run_fn and ours:
            raise ValueError(
                f"run_fn builds the model itself, so {', '.join(ours)} would have no effect; leave one out"
            )
        return self
