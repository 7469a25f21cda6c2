"""A program that loads an exported model with TensorFlow only, like a server, and runs its signatures.

    python -m components.trainer.export_check_process < request.json > response.json

The Trainer forks a process instead, where it can; see `answer`.

request: `model`, its folder, and `signatures`: signature → input → a serialized tensor in base64.
response: signature → output → a tensor in the same form.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.compat.tensorflow import import_for_predictions

if TYPE_CHECKING:
    import tensorflow as tf


def main(request: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Run the signatures of a model; return the response."""
    import tensorflow as tf

    signatures = tf.saved_model.load(request["model"]).signatures
    response = {}
    for name, inputs in request["signatures"].items():
        signature = signatures[name]
        specs = signature.structured_input_signature[1]
        outputs = signature(**{key: decode_tensor(text, specs[key].dtype) for key, text in inputs.items()})
        response[name] = {key: encode_tensor(value) for key, value in outputs.items()}
    return response


def answer(request: str, response: str) -> int:
    """Read the request from a file, write the response to a file, and return the exit code."""
    Path(response).write_text(json.dumps(main(json.loads(Path(request).read_text()))))
    return 0


def encode_tensor(tensor: tf.Tensor) -> str:
    """Serialize a tensor as base64 text."""
    import tensorflow as tf

    return base64.b64encode(tf.io.serialize_tensor(tensor).numpy()).decode()


def decode_tensor(text: str, dtype: tf.DType) -> tf.Tensor:
    """Parse a tensor from `encode_tensor`'s text."""
    import tensorflow as tf

    return tf.io.parse_tensor(base64.b64decode(text), dtype)


if __name__ == "__main__":
    import_for_predictions()  # while the other process writes the model
    json.dump(main(json.load(sys.stdin)), sys.stdout)
