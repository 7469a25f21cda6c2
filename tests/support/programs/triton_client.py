"""Calls a model server with NVIDIA's client of the Open Inference Protocol; run in the environment `inference_clients`.

    python triton_client.py http|grpc HOST:PORT

The server serves `line` of tests/support/servers/serving.py. Prints what the client returned, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np


def main(protocol: str, address: str) -> dict[str, Any]:
    """Call every method that both the server and the client have."""
    triton = importlib.import_module(f"tritonclient.{protocol}")
    errors = importlib.import_module("tritonclient.utils")
    client = triton.InferenceServerClient(address)
    json_option = {"as_json": True} if protocol == "grpc" else {}

    def make_input(name: str, datatype: str, values: Any) -> Any:
        tensor = triton.InferInput(name, list(values.shape), datatype)
        tensor.set_data_from_numpy(values)
        return tensor

    def infer(**options: Any) -> Any:
        columns = [make_input("x", "FP32", np.array([1, 2.5], np.float32))]
        columns.append(make_input("name", "BYTES", np.array(["Ä".encode(), b"\xff"], object)))
        return client.infer("line", columns, request_id="a", **options)

    answers: dict[str, Any] = {
        "health": [client.is_server_live(), client.is_server_ready()],
        "ready": [client.is_model_ready("line"), client.is_model_ready("line", "1"), client.is_model_ready("nope")],
        "server": client.get_server_metadata(**json_option),
        "model": client.get_model_metadata("line", **json_option),
    }
    result = infer()
    answers["numbers"] = result.as_numpy("y").tolist()
    answers["dtype"] = str(result.as_numpy("y").dtype)
    answers["strings"] = [list(value) for value in result.as_numpy("name_bytes")]
    result = infer(model_version="1", outputs=[triton.InferRequestedOutput("y")])
    answers["version 1"] = [result.as_numpy("y").tolist(), result.as_numpy("greeting")]
    pairs = [make_input("pairs", "INT64", np.array([[1, 2], [2**40, 0]]))]
    result = client.infer("line", pairs, parameters={"signature_name": "pairs"})
    answers["pairs"] = result.as_numpy("sum").tolist()
    if protocol == "http":
        for algorithm in ("gzip", "deflate"):
            answers[algorithm] = infer(request_compression_algorithm=algorithm).as_numpy("y").tolist()
        text = triton.InferInput("x", [2], "FP32")
        text.set_data_from_numpy(np.array([1, 2.5], np.float32), binary_data=False)
        name = triton.InferInput("name", [2], "BYTES")
        name.set_data_from_numpy(np.array(["a", "b"], object), binary_data=False)
        result = client.infer(
            "line", [text, name], outputs=[triton.InferRequestedOutput("greeting", binary_data=False)]
        )
        answers["json"] = result.as_numpy("greeting").tolist()
    try:
        client.infer("line", [make_input("x", "FP64", np.array([1.0]))], parameters={"signature_name": "raw"})
    except errors.InferenceServerException as error:
        answers["error"] = [error.status(), error.message()]
    client.close()
    return answers


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
