"""The `model` section: which network reads the features."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from components.names import Build, RunFn
from components.section import Section

Kind = Literal["wide_deep", "mlp", "dlrm", "dcn_v2", "tabm", "linear"]
_DEEP = ("wide_deep", "mlp", "dlrm", "dcn_v2", "tabm")
_ONLY = {
    "members": ("tabm",),
    "cross_layers": ("dcn_v2",),
    **dict.fromkeys(("hidden", "embedding", "dropout", "normalisation"), _DEEP),
}
"""The kinds that a field has a meaning in, where it has none in others."""


class ModelConfig(Section):
    """The network; or a function of your own that builds it, or a run_fn that does all."""

    kind: Kind = "wide_deep"
    """wide_deep: a linear model over ids beside a deep one (Cheng et al. 2016); mlp: the deep part alone; dlrm: dot
    products between embedded ids, and with the numbers, beside a weight per id (Naumov et al. 2019); dcn_v2: layers
    that multiply all features with each other, beside the deep part (Wang et al. 2021); tabm: many mlps that share most
    weights, the best for tables without large vocabularies (Gorishniy et al. 2024); linear: a weight per number and
    id."""
    hidden: tuple[PositiveInt, ...] = Field(default=(128, 64), min_length=1)
    """Units of each hidden layer, from the input up. dlrm has them twice: under the dot products, for the numbers, and
    above."""
    embedding: int = Field(default=16, ge=1, le=4096)
    """The widest embedding of an id; a column with few ids gets a narrower one. In dlrm all are this wide."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of hidden units dropped in training."""
    normalisation: Literal["none", "layer"] = "none"
    """layer: the outputs of each hidden layer are normalised, example by example."""
    members: int = Field(default=8, ge=2, le=256)
    """tabm: how many mlps there are; the cost of a step grows with them."""
    cross_layers: int = Field(default=3, ge=1, le=16)
    """dcn_v2: layers of products; with n of them up to n + 1 features are multiplied."""
    run_fn: RunFn | None = None
    """A run_fn of your own, as stock TFX takes it: it builds, trains and exports the model itself.
    package.module.function, or a file such as path/to/module.py."""
    build: Build | None = None
    """A function of your own, (inputs, outputs) → tf_keras.Model of logits: it builds the network, and all else stays
    as it is. package.module.function, or path/to/module.py:function."""

    @model_validator(mode="after")
    def _of_the_kind(self) -> ModelConfig:
        fields = type(self).model_fields
        for name, kinds in _ONLY.items():
            if getattr(self, name) != fields[name].default and self.kind not in kinds:
                raise ValueError(f"{name} has no effect in {self.kind}, only in {', '.join(kinds)}; leave it out")
        return self

    @model_validator(mode="after")
    def _own_code_alone(self) -> ModelConfig:
        own = "run_fn" if self.run_fn else "build"
        # What is written out with its default, as a recorded plan is, asks for nothing.
        fields, chosen = type(self).model_fields, self.model_fields_set - {own}
        ours = sorted(name for name in chosen if getattr(self, name) != fields[name].default)
        if getattr(self, own) and ours:
            raise ValueError(f"{own} builds the model itself, so {', '.join(ours)} would have no effect; leave one out")
        return self

    def width(self, ids: int, own: int | None = None) -> int:
        """How wide the embedding of so many ids is: its own width, or a power of two that grows with their root.

        In dlrm all are equally wide.
        """
        if self.kind == "dlrm":
            return self.embedding
        return own or min(self.embedding, 2 ** math.ceil(math.log2(max(4.0, math.sqrt(ids)))))
