"""Sends load to a server, or calls a model, and tells what it has seen as a line of JSON.

python -m benchmarks.serving_side rows VERSION FILE
python -m benchmarks.serving_side load rest|grpc|v2 PORT CONNECTIONS REQUESTS FILE
python -m benchmarks.serving_side call REQUESTS VERSION
python -m benchmarks.serving_side constant READY

VERSION is the folder of a model that was warmed up: its warm-up requests are what is asked for; `rows` writes them into
FILE, so that the load needs no TensorFlow. `constant` serves REST and gRPC by the same libraries as our server, and
answers every request with the same bytes; its ports go into READY. Requests are made beforehand, and answers are only
looked at for whether they are predictions: the load shares its cores with the server.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_NAME = "taxi"
_PATHS = {"rest": f"/v1/models/{_NAME}:predict", "v2": f"/v2/models/{_NAME}/infer"}


def warm_up(version: Path) -> list[Any]:
    """The PredictRequests that a version is warmed up with."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    file = str(version / "assets.extra/tf_serving_warmup_requests")
    logs = tf.data.TFRecordDataset(file).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(log).predict_log.request for log in logs]


def write_rows(version: Path, file: Path) -> None:
    """Writes the same as JSON: of each its row, and all of it, in base64."""
    told = [
        [base64.b64encode(each).decode() for each in (_row(request), request.SerializeToString())]
        for request in warm_up(version)
    ]
    file.write_text(json.dumps(told))


def _row(request: Any) -> bytes:
    row: bytes = next(iter(request.inputs.values())).string_val[0]
    return row


def posts(api: str, port: int, rows: Sequence[str]) -> list[bytes]:
    """Requests over REST, as whole HTTP requests.

    Args:
      api: rest, or v2 for MLServer's.
      port: where they will be sent.
      rows: in base64.
    """
    made = []
    for row in rows:
        if api == "rest":
            body = json.dumps({"instances": [{"b64": row}]})
        else:
            told = {"name": "examples", "datatype": "BYTES", "shape": [1, 1], "data": [row]}
            body = json.dumps({"inputs": [{**told, "parameters": {"content_type": "base64"}}]})
        head = f"POST {_PATHS[api]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return made


class _Connection(asyncio.Protocol):
    """One connection that asks, waits for the answer, and asks again, until nobody hands it a request."""

    def __init__(self, load: _Load) -> None:
        self._load, self._buffer, self._length = load, b"", -1
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        request = next(self._load.requests, None)
        if request is None:
            self._transport.close()
            self.ended.set_result(None)
            return
        self._started = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._length < 0:
            head, found, _ = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            lower = head.lower()
            self._length = len(head) + 4 + int(lower.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(self._buffer) >= self._length:
            self._load.answered(self._started, b" 200 " in self._buffer[:16])
            self._buffer, self._length = b"", -1
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the server has closed the connection"))


class _Load:
    """Hands out requests, and keeps what became of them."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self.requests = requests
        self.seconds: list[float] = []
        self.failed = 0

    def answered(self, started: float, well: bool) -> None:
        self.seconds.append(time.perf_counter() - started)
        self.failed += not well

    def told(self, wall: float) -> dict[str, float]:
        hundredths = statistics.quantiles((each * 1e3 for each in self.seconds), n=100)
        p50, p99 = hundredths[49], hundredths[98]
        return {
            "requests": len(self.seconds),
            "seconds": wall,
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
            "failed": self.failed,
        }


async def _http(port: int, connections: int, load: _Load) -> None:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: _Connection(load), "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(connection.ended for _, connection in made))


async def _grpc(port: int, connections: int, load: _Load) -> None:
    import grpc

    async def ask() -> None:
        # A connection of its own; calls of one channel would share one.
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            for request in load.requests:
                started = time.perf_counter()
                load.answered(started, bool(await predict(request)))

    await asyncio.gather(*(ask() for _ in range(connections)))


def load(api: str, port: int, connections: int, count: int, file: Path) -> dict[str, float]:
    """Sends so many requests from so many connections; returns the fields of a Load."""
    told = json.loads(file.read_text())
    whole = (
        [base64.b64decode(each) for _, each in told] if api == "grpc" else posts(api, port, [row for row, _ in told])
    )
    seen = _Load(itertools.islice(itertools.cycle(whole), count))
    send: Callable[[int, int, _Load], Awaitable[None]] = _grpc if api == "grpc" else _http

    async def sent() -> None:
        await send(port, connections, seen)

    started = time.perf_counter()
    asyncio.run(sent())
    return seen.told(time.perf_counter() - started)


def call(count: int, version: Path) -> dict[str, float]:
    """Calls the model with one row after the other, as the server does; returns the fields of a Load."""
    from components.serving.server.servable import Servable
    from components.serving.server.tensors import from_proto

    signature = Servable(version, 1).signature("serving_default")
    asked = [{name: from_proto(proto) for name, proto in request.inputs.items()} for request in warm_up(version)]
    seen = _Load(iter(()))
    began = time.perf_counter()
    for inputs in itertools.islice(itertools.cycle(asked), count):
        started = time.perf_counter()
        signature.run(inputs)
        seen.answered(started, True)
    return seen.told(time.perf_counter() - began)


async def constant(ready: Path) -> None:
    """Serves until it is killed."""
    import grpc
    from aiohttp import web

    async def post(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b'{"predictions": [[0.5]]}', content_type="application/json")

    async def call(_request: bytes, _context: Any) -> bytes:
        return b"answer"

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(call)

    app = web.Application()
    app.router.add_post("/{path:.*}", post)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    rpc = grpc.aio.server()
    rpc.add_generic_rpc_handlers((Handler(),))
    port = rpc.add_insecure_port("127.0.0.1:0")
    await rpc.start()
    beside = ready.with_suffix(".new")
    beside.write_text(json.dumps({"rest_port": runner.addresses[0][1], "grpc_port": port}))
    beside.replace(ready)
    await rpc.wait_for_termination()


def main(arguments: Sequence[str]) -> None:
    """Does what the arguments say."""
    if arguments[0] == "load":
        api, port, connections, count, file = arguments[1:]
        print(json.dumps(load(api, int(port), int(connections), int(count), Path(file))), flush=True)
    elif arguments[0] == "call":
        print(json.dumps(call(int(arguments[1]), Path(arguments[2]))), flush=True)
    elif arguments[0] == "constant":
        asyncio.run(constant(Path(arguments[1])))
    else:
        write_rows(Path(arguments[1]), Path(arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
