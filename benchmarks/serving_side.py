"""What the serving benchmark runs in processes of their own.

python -m benchmarks.serving_side request VERSION FOLDER
python -m benchmarks.serving_side call REQUESTS VERSION PAUSE
python -m benchmarks.serving_side constant READY

VERSION is the folder of a model that was warmed up. `request` writes the first of its warm-up requests into FOLDER, as
the body that each API takes. `call` calls the model with all of them, rests PAUSE seconds after each, and tells how
long each took as a line of JSON. `constant` serves REST and gRPC by the same libraries as our server, and answers every
request with the same bytes; its ports go into READY.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop


def warm_up(version: Path) -> list[Any]:
    """The PredictRequests that a version is warmed up with."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    file = str(version / "assets.extra/tf_serving_warmup_requests")
    logs = tf.data.TFRecordDataset(file).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(log).predict_log.request for log in logs]


def write_request(version: Path, folder: Path) -> None:
    """Writes one row as the bodies of three APIs: rest, grpc (with gRPC's own frame), v2 (MLServer's)."""
    request = warm_up(version)[0]
    row = base64.b64encode(next(iter(request.inputs.values())).string_val[0]).decode()
    content = request.SerializeToString()
    examples = {"name": "examples", "datatype": "BYTES", "shape": [1, 1], "data": [row]}
    (folder / "rest").write_text(json.dumps({"instances": [{"b64": row}]}))
    (folder / "v2").write_text(json.dumps({"inputs": [{**examples, "parameters": {"content_type": "base64"}}]}))
    (folder / "grpc").write_bytes(struct.pack(">?I", False, len(content)) + content)


def call(count: int, version: Path, pause: float) -> dict[str, list[int]]:
    """Calls the model with one row after the other, as the server does; returns the microseconds of each call."""
    from components.serving.server.servable import Servable
    from components.serving.server.tensors import from_proto

    signature = Servable(version, 1).signature("serving_default")
    asked = [{name: from_proto(proto) for name, proto in request.inputs.items()} for request in warm_up(version)]
    took = []
    for inputs in itertools.islice(itertools.cycle(asked), count):
        started = time.perf_counter()
        signature.run(inputs)
        took.append(round((time.perf_counter() - started) * 1e6))
        if pause:
            time.sleep(pause)
    return {"took": took}


async def constant(ready: Path) -> None:
    """Serves until it is killed."""
    from components.serving.server.http1 import Http, Request, Response
    from components.serving.server.room import Room
    from components.serving.server.rpc import Rpc

    async def answer(_request: Request) -> Response:
        return Response(b'{"predictions": [[0.5]]}')

    async def predict(_message: bytes) -> bytes:
        return b"answer"

    room = Room(1 << 20)
    rest = Http(answer, room, 60.0)
    rpc = Rpc({"tensorflow.serving.PredictionService": {"Predict": predict}}, room, 60.0)
    ports = {"rest_port": await rest.listen("127.0.0.1", 0), "grpc_port": await rpc.listen("127.0.0.1", 0)}
    beside = ready.with_suffix(".new")
    beside.write_text(json.dumps(ports))
    beside.replace(ready)
    await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    """Does what the arguments say."""
    if arguments[0] == "request":
        write_request(Path(arguments[1]), Path(arguments[2]))
    elif arguments[0] == "call":
        print(json.dumps(call(int(arguments[1]), Path(arguments[2]), float(arguments[3]))), flush=True)
    else:
        uvloop.run(constant(Path(arguments[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
