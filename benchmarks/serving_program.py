"""Programs of the serving benchmark, which run in separate processes.

python -m benchmarks.serving_program request VERSION FOLDER
python -m benchmarks.serving_program call REQUESTS VERSION PAUSE

VERSION is the folder of a model with warm-up requests. `request` writes the first of them to FOLDER, as request bodies
of all APIs. `call` calls the model with all warm-up requests, sleeps PAUSE seconds after each call, and prints the
durations of the calls as a line of JSON.
"""

from __future__ import annotations

import base64
import itertools
import json
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def warm_up(version: Path) -> list[Any]:
    """Return the warm-up requests of a version's serving_default, one row per PredictRequest."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    file = str(version / "assets.extra/tf_serving_warmup_requests")
    logs = tf.data.TFRecordDataset(file).as_numpy_iterator()
    requests = [prediction_log_pb2.PredictionLog.FromString(log).predict_log.request for log in logs]
    return [request for request in requests if request.model_spec.signature_name in ("", "serving_default")]


def write_request(version: Path, folder: Path) -> None:
    """Write a row as request bodies of three APIs: rest, grpc (with gRPC's frame) and v2 (MLServer)."""
    request = warm_up(version)[0]
    row = base64.b64encode(next(iter(request.inputs.values())).string_val[0]).decode()
    content = request.SerializeToString()
    examples = {"name": "examples", "datatype": "BYTES", "shape": [1, 1], "data": [row]}
    (folder / "rest").write_text(json.dumps({"instances": [{"b64": row}]}))
    (folder / "v2").write_text(json.dumps({"inputs": [{**examples, "parameters": {"content_type": "base64"}}]}))
    (folder / "grpc").write_bytes(struct.pack(">?I", False, len(content)) + content)


def call(count: int, version: Path, pause: float) -> dict[str, list[int]]:
    """Call the model row by row, as the server does; return the durations of the calls in microseconds."""
    from components.serving.server.saved_model import SavedModel, from_proto

    signature = SavedModel(version, 1).signature("serving_default")
    requests = [{name: from_proto(proto) for name, proto in request.inputs.items()} for request in warm_up(version)]
    took = []
    for inputs in itertools.islice(itertools.cycle(requests), count):
        started = time.perf_counter()
        signature.run(inputs)
        took.append(round((time.perf_counter() - started) * 1e6))
        if pause:
            time.sleep(pause)
    return {"took": took}


def main(arguments: Sequence[str]) -> None:
    """Run the subcommand."""
    if arguments[0] == "request":
        write_request(Path(arguments[1]), Path(arguments[2]))
    else:
        print(json.dumps(call(int(arguments[1]), Path(arguments[2]), float(arguments[3]))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
