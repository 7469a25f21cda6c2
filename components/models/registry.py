"""The registry of models: kind in the config → the function that builds the network.

It does not import TensorFlow, so that the config can check the kind of an installed package quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from components.base.registry import Registry

Builder = Callable[[Any, Any, int], Any]
"""(ModelConfig, Inputs, number of outputs) → an uncompiled tf_keras.Model from a dict of transformed features to
float32 logits of shape [batch, outputs]. The logits of an ensemble have the shape [batch, members, outputs], because
each member has its own loss."""

MODELS: Registry[Builder] = Registry(
    "models",
    {
        "wide_deep": "components.models.tabular:wide_deep",
        "mlp": "components.models.tabular:mlp",
        "dlrm": "components.models.tabular:dlrm",
        "dcn_v2": "components.models.tabular:dcn_v2",
        "linear": "components.models.tabular:linear",
        "tabm": "components.models.tabm:tabm",
        "ensemble": "components.models.tabm:tabm",
        "cnn": "components.models.images:cnn",
        "application": "components.models.images:application",
        "din": "components.models.histories:din",
        "bst": "components.models.histories:bst",
        "esmm": "components.models.labels:esmm",
        "mmoe": "components.models.labels:mmoe",
        "ple": "components.models.labels:ple",
        "final_mlp": "components.models.final_mlp:final_mlp",
        "two_tower": "components.models.two_tower:two_tower",
        "autoencoder": "components.models.autoencoder:autoencoder",
    },
    "a function (config, inputs, outputs) → tf_keras.Model",
    callable,
)
"""Kind → builder, for the kinds with a network; installed packages add kinds to the group `tfx_pipeline.models`."""
