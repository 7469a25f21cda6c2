"""The models: one dict from a kind in the config to the function that builds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from components.models.config import ModelConfig
from components.models.inputs import Inputs

Builder = Callable[[ModelConfig, Inputs, int], Any]
"""(config, inputs, outputs) → an uncompiled tf_keras.Model from a dict of transformed features to float32 logits of
shape [batch, outputs]; of an ensemble [batch, members, outputs], whose members learn each by itself."""

MODELS: dict[str, Builder] = {}


def model(kind: str) -> Callable[[Builder], Builder]:
    """Registers the function below it as the builder of a kind."""

    def register(builder: Builder) -> Builder:
        MODELS[kind] = builder
        return builder

    return register
