"""Loads an exported model as a server does, with TensorFlow alone, and asks it; a program of its own.

    python -m components.trainer.reload < asked.json > answered.json

asked: `model`, its folder, and `signatures`: signature → input → a tensor, serialized, in base64.
answered: signature → output → a tensor in the same form.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import tensorflow as tf


def main(asked: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Asks the signatures of a model."""
    signatures = tf.saved_model.load(asked["model"]).signatures
    answered = {}
    for name, given in asked["signatures"].items():
        signature = signatures[name]
        specs = signature.structured_input_signature[1]
        answers = signature(**{key: unpacked(text, specs[key].dtype) for key, text in given.items()})
        answered[name] = {key: packed(value) for key, value in answers.items()}
    return answered


def packed(tensor: Any) -> str:
    """A tensor as text."""
    return base64.b64encode(tf.io.serialize_tensor(tensor).numpy()).decode()


def unpacked(text: str, dtype: Any) -> Any:
    """The tensor that `packed` made a text of."""
    return tf.io.parse_tensor(base64.b64decode(text), dtype)


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
