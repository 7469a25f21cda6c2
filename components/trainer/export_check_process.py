"""A program that loads an exported model with TensorFlow only, like a server, and runs its signatures.

    python -m components.trainer.export_check_process < request.json > response.json

The Trainer forks a process instead, where it can; see `answer`.

request: `model`, its folder, and `signatures`: signature → input → a TensorProto in base64.
response: signature → output → a TensorProto in base64.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.compat.tensorflow import create_session, import_for_predictions, load_graph

if TYPE_CHECKING:
    import numpy.typing as npt


def main(request: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Run the signatures of a model; return the response."""
    # As in a server, a session does not create Python objects for the functions of the model.
    session = create_session()
    definitions = load_graph(session, request["model"]).signature_def
    response = {}
    for name, inputs in request["signatures"].items():
        definition = definitions[name]
        fetched = {key: info.name for key, info in definition.outputs.items()}
        fed = {definition.inputs[key].name: decode_array(text) for key, text in inputs.items()}
        response[name] = {key: encode_array(value) for key, value in session.run(fetched, fed).items()}
    return response


def answer(request: str, response: str) -> int:
    """Read the request from a file, write the response to a file, and return the exit code."""
    Path(response).write_text(json.dumps(main(json.loads(Path(request).read_text()))))
    return 0


def encode_array(array: npt.NDArray[Any]) -> str:
    """Serialize an array as base64 text of a TensorProto."""
    import tensorflow as tf

    return base64.b64encode(tf.make_tensor_proto(array).SerializeToString()).decode()


def decode_array(text: str) -> npt.NDArray[Any]:
    """Parse an array from `encode_array`'s text; strings are bytes in an array of objects."""
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    array: npt.NDArray[Any] = tf.make_ndarray(tensor_pb2.TensorProto.FromString(base64.b64decode(text)))
    return array


if __name__ == "__main__":
    import_for_predictions()  # while the other process writes the model
    json.dump(main(json.load(sys.stdin)), sys.stdout)
