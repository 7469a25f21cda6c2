"""From the `model` section to the network that it declares."""

from __future__ import annotations

from typing import Any

from components.models import tabular  # noqa: F401 - registers its models
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import MODELS


def build(config: ModelConfig, inputs: Inputs, outputs: int) -> Any:
    """Builds the network of the config's kind, see registry.Builder.

    Args:
      config: the kind, and how large it is.
      inputs: what it reads.
      outputs: its logits.
    """
    return MODELS[config.kind](config, inputs, outputs)
