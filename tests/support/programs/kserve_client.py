"""Calls a model server with KServe's client of the Open Inference Protocol; run in the environment `inference_clients`.

    python kserve_client.py HOST:REST_PORT HOST:GRPC_PORT

The server serves `line` of tests/support/servers/serving.py. Prints what the clients returned, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig


def make_request(*, binary: bool) -> InferRequest:
    """Create a request with columns of numbers and text, for version 1."""
    x = InferInput("x", [2], "FP32")
    x.set_data_from_numpy(np.array([1, 2.5], np.float32), binary_data=binary)
    name = InferInput("name", [2], "BYTES")
    name.set_data_from_numpy(np.array([b"a", b"b"], object), binary_data=binary)
    return InferRequest("line", [x, name], model_version="1", request_id="a")


def read(response: Any) -> dict[str, Any]:
    """Return the names and values of the outputs."""
    values = {output.name: output.as_numpy().tolist() for output in response.outputs}
    return {
        name: [item.decode() if isinstance(item, bytes) else item for item in items] for name, items in values.items()
    }


async def main(rest: str, rpc: str) -> dict[str, Any]:
    """Call every method that the server has."""
    base = f"http://{rest}"
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    answers: dict[str, Any] = {
        "REST health": [await client.is_server_live(base), await client.is_server_ready(base)],
        "REST ready": [await client.is_model_ready(base, "line")],
    }
    for binary in (False, True):
        response = await client.infer(base, make_request(binary=binary), model_name="line")
        answers[f"REST {binary}"] = read(response)
    await client.close()
    grpc_client = InferenceGRPCClient(rpc, timeout=60)
    answers["gRPC health"] = [await grpc_client.is_server_live(), await grpc_client.is_server_ready()]
    answers["gRPC ready"] = [await grpc_client.is_model_ready("line"), await grpc_client.is_model_ready("nope")]
    for binary in (False, True):
        answers[f"gRPC {binary}"] = read(await grpc_client.infer(make_request(binary=binary)))
    await grpc_client.close()
    return answers


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
