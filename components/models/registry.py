"""The registry of models: kind in the config → the function that builds the network."""

from __future__ import annotations

from collections.abc import Callable

import tf_keras

from components.models.config import ModelConfig
from components.models.inputs import Inputs

Builder = Callable[[ModelConfig, Inputs, int], tf_keras.Model]
"""(config, inputs, outputs) → an uncompiled network from a dict of transformed features to float32 logits of shape
[batch, outputs]; that of an ensemble to [batch, members, outputs], where each member has its own loss."""

MODELS: dict[str, Builder] = {}


def model(kind: str) -> Callable[[Builder], Builder]:
    """Decorate the builder of a kind."""

    def register(builder: Builder) -> Builder:
        MODELS[kind] = builder
        return builder

    return register
