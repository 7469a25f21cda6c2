"""The process that loads an exported model with TensorFlow only, like a server, and runs its signatures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy.typing as npt

from components.compat.tensorflow import create_session, import_for_predictions, load_graph

SignatureArrays: TypeAlias = "Mapping[str, Mapping[str, npt.NDArray[Any]]]"
"""Signature → input or output → its value."""


def load() -> Callable[[str, SignatureArrays], SignatureArrays]:
    """Import TensorFlow while the other process writes the model."""
    # Hide the accelerators, because the other process may have allocated all of their memory.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import_for_predictions()
    return predict


def predict(model: str, inputs: SignatureArrays) -> SignatureArrays:
    """Run signatures of the model in a folder, and return their outputs."""
    # A session does not create Python objects for the functions of the model.
    session = create_session()
    definitions = load_graph(session, model).signature_def
    outputs = {}
    for name, values in inputs.items():
        definition = definitions[name]
        fetched = {key: info.name for key, info in definition.outputs.items()}
        outputs[name] = session.run(fetched, {definition.inputs[key].name: value for key, value in values.items()})
    return outputs
