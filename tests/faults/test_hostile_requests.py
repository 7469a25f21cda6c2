"""Requests that are wrong, too large, too slow or too many are rejected; other clients do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import re
import resource
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import get_model_metadata_pb2

from tests.support.runs.peak_memory import measure_growth
from tests.support.servers.load import Load
from tests.support.servers.serving import Server, b64, example, line, predict, proto, serving

READ_SECONDS = 2
MAX_BYTES = 8 << 20
IN_FLIGHT = 16
CONNECTIONS = 1000
PATH = "/v1/models/line:predict"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
CODES = grpc.StatusCode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = tmp_path_factory.mktemp("hostile")
    line(folder / "line", 1, manifest=True)
    options = ["--model_name=line", f"--model_base_path={folder / 'line'}", "--enable_batching", "--workers=2"]
    options += [f"--read_timeout_seconds={READ_SECONDS}", f"--idle_timeout_seconds={2 * READ_SECONDS}"]
    options += [f"--max_in_flight={IN_FLIGHT}", f"--max_body_bytes={MAX_BYTES}"]
    try:
        with serving(folder, *options) as server:
            server.wait("line", 1)
            yield server
            assert server.stop() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(autouse=True)
def statuses(server: Server) -> Iterator[set[int]]:
    """Yield the set of statuses, at first {200}, that a second client with continuous requests may receive."""
    statuses = {200}
    body = json.dumps({"instances": [b64(example(3))]}).encode()
    with Load(f"127.0.0.1:{server.rest}", PATH, body, connections=1) as load:
        load.wait(1)
        yield statuses
    assert {status for status, _ in load.answers} <= statuses
    assert {content for status, content in load.answers if status == 200} == {b'{"predictions": [7.0]}'}


def nest(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "expected a JSON object"),
        (nest(1_000_000), "recursion"),
        (b'{"instances": ' + nest(300) + b"}", "in lists of one length"),
        (b'{"instances": [' + b"9" * 5_000_000 + b"]}", "expected a JSON object"),
        ({"instances": [None]}, "received null"),
        ({"inputs": b64(example(1))}, "expected shape [-1], received []"),
        ({"instances": ["x" * 7_000_000]}, "Feature: x"),
        ({"instances": [b64(b"\xff\xff\xff")]}, "Could not parse example input"),
        ({"signature_name": 1, "instances": [1]}, "signature_name: expected a string"),
        ({"signature_name": "\ud800", "instances": [1]}, "signature_name: expected a string"),
        ({"signature_name": "nope", "instances": [1]}, "received 'nope'"),
    ],
)
def test_rest_bodies(server: Server, body: Any, word: str) -> None:
    status, answer = server.ask("POST", PATH, body)
    assert (status, word in answer["error"]) == (400, True), answer
    assert len(answer["error"]) <= 1001


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        (predict(), CODES.INVALID_ARGUMENT, "expected the inputs ['examples'], received []"),
        (predict(model="\n\u0000ä"), CODES.NOT_FOUND, "expected a model of ['line']"),
        (predict(model="x" * 1_000_000), CODES.NOT_FOUND, "xxx"),
        (predict(signature="nope"), CODES.FAILED_PRECONDITION, "received 'nope'"),
        (predict(examples=[1.0]), CODES.INVALID_ARGUMENT, "expected string, received float32"),
        (predict(examples=[b"\xff\xff\xff"]), CODES.INVALID_ARGUMENT, "Could not parse example input"),
        (predict(signature="pairs", pairs=proto(9, [1 << 40, 2])), CODES.INVALID_ARGUMENT, "elements, received"),
        (predict(signature="pairs", pairs=proto(9, [1] * 100_000)), CODES.INVALID_ARGUMENT, "100000 dimensions"),
        (predict(signature="pairs", pairs=proto(20, [1, 2])), CODES.INVALID_ARGUMENT, "dtype 20"),
    ],
)
def test_grpc_requests(server: Server, request_: Any, code: Any, word: str) -> None:
    with server.stubs() as (stub, _), pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request_)
    assert (caught.value.code(), word in caught.value.details()) == (code, True), caught.value.details()


def test_other_rpcs(server: Server) -> None:
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["everything"])
    filtered = predict(examples=[example(1)])
    metadata.model_spec.name = "line"
    filtered.output_filter.append("nope")
    with server.stubs() as (stub, _):
        for call, request, word in (
            (stub.GetModelMetadata, metadata, "expected signature_def"),
            (stub.Predict, filtered, "expected outputs of ['y'], received 'nope'"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(request)
            assert (caught.value.code(), word in caught.value.details()) == (CODES.INVALID_ARGUMENT, True)


@contextlib.contextmanager
def memory_limit(server: Server, max_bytes: int) -> Iterator[None]:
    """Check that the peak of the server's memory grows by less than this number of bytes in the block."""
    with measure_growth(server.process.pid) as growth:
        yield
    assert growth.peak_bytes < max_bytes


@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        (PREDICT, b"\xff\xff\xff", CODES.INVALID_ARGUMENT),
        (PREDICT, b"", CODES.NOT_FOUND),
        ("/tensorflow.serving.PredictionService/Nope", b"", CODES.UNIMPLEMENTED),
        ("/tensorflow.serving.PredictionService/Classify", b"", CODES.UNIMPLEMENTED),
        (PREDICT, bytes(100 << 20), CODES.RESOURCE_EXHAUSTED),
    ],
)
def test_grpc_messages(server: Server, method: str, message: bytes, code: Any) -> None:
    options = [("grpc.max_send_message_length", -1)]
    with memory_limit(server, 100 << 20), grpc.insecure_channel(f"127.0.0.1:{server.rpc}", options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(method)(message, timeout=60)
        assert caught.value.code() == code


def send(server: Server, *parts: bytes) -> tuple[http.client.HTTPResponse, Any]:
    """Send bytes until the server answers; return the answer and its JSON body."""
    with socket.create_connection(("127.0.0.1", server.rest), timeout=60) as client:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                if select.select([client], [], [], 0)[0]:
                    break
                client.sendall(part)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        return answer, json.loads(answer.read())


def head(*headers: str) -> bytes:
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def make_bomb(megabytes: int) -> bytes:
    """Return a gzip file of zeros. After a full flush, the compressed form of a megabyte can be repeated."""
    compressor = zlib.compressobj(9, wbits=31)
    first, further = (compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    checksum = zlib.crc32(bytes(megabytes << 20))
    end_of_data = b"\x03\x00"
    return first + (megabytes - 1) * further + end_of_data + struct.pack("<II", checksum, megabytes << 20)


MEGABYTE = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
BOMB = make_bomb(256)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        pytest.param([b"\x16\x03\x01\x02\x00\x01\r\n\r\n"], 400, id="garbage"),
        pytest.param([b"GET /v1/models/\xed\xa0\x80 HTTP/1.1\r\nHost: x\r\n\r\n"], 400, id="no-utf-8"),
        pytest.param([b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n"], 400, id="long-path"),
        pytest.param([head("X: " + "x" * 100_000)], 400, id="long-header"),
        pytest.param([head("X: " + "x" * 40_000)[:-4], b"x" * 600_000], 400, id="growing-header"),
        pytest.param([head(*(f"X{number}: x" for number in range(20_000)))], 400, id="many-headers"),
        pytest.param([head("Content-Length: 1", "Transfer-Encoding: chunked"), b"0\r\n\r\n"], 400, id="two-lengths"),
        pytest.param([head("Transfer-Encoding: chunked"), b"no number\r\n\r\n"], 400, id="broken-chunk"),
        pytest.param([head("Transfer-Encoding: chunked") + b"no number\r\n\r\n"], 400, id="broken-first-chunk"),
        pytest.param([b"GET / HTTP/9.9\r\nHost: x\r\n\r\n"], 400, id="unknown-version"),
        pytest.param([b"GET / HTTP/1.1\r\nno colon\r\n\r\n"], 400, id="no-colon"),
        pytest.param([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 400, id="http-2"),
        pytest.param([head("Expect: nothing", "Content-Length: 0")], 417, id="unknown-expectation"),
        pytest.param([head("Content-Encoding: br", "Content-Length: 9")], 415, id="brotli"),
        pytest.param([head("Content-Encoding: zstd", "Content-Length: 9")], 415, id="zstandard"),
        pytest.param([head("Content-Encoding: x-nope", "Content-Length: 0")], 415, id="unknown-encoding"),
        pytest.param([head("Content-Encoding: gzip, gzip", "Content-Length: 0")], 415, id="two-encodings"),
        pytest.param([head("Transfer-Encoding: chunked"), *[MEGABYTE] * 100], 413, id="100-megabytes-chunked"),
        pytest.param([head("Content-Length: 104857600"), *[bytes(1 << 20)] * 100], 413, id="100-megabytes"),
        pytest.param([head("Content-Encoding: gzip", f"Content-Length: {len(BOMB)}"), BOMB], 413, id="gzip-bomb"),
        pytest.param([head("Content-Encoding: gzip", "Content-Length: 99"), BOMB[:99]], 400, id="half-a-gzip"),
    ],
)
def test_http(server: Server, parts: list[bytes], status: int) -> None:
    with memory_limit(server, 100 << 20):
        answer, body = send(server, *parts)
    assert (answer.version, answer.status) == (11, status), body
    assert set(body) == {"error"}
    assert len(body["error"]) <= 1001
    if status == 415:
        assert body["error"].endswith("; expected gzip, deflate or identity")
        assert answer.headers["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)],
)
def test_compressed_body_is_read(server: Server, encoding: str, compress: Callable[[bytes], bytes]) -> None:
    body = compress(json.dumps({"instances": [b64(example(1))]}).encode())
    answer, value = send(server, head(f"Content-Encoding: {encoding}", f"Content-Length: {len(body)}"), body)
    assert (answer.status, value) == (200, {"predictions": [3.0]})


def read_all(server: Server, *parts: bytes) -> list[tuple[int, Any]]:
    """Send bytes, end the sending side of the connection, and return all answers."""
    with socket.create_connection(("127.0.0.1", server.rest), timeout=60) as client:
        for part in parts:
            client.sendall(part)
        client.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    answers = re.findall(rb"HTTP/1\.1 (\d+) .*?\r\n\r\n(\{.*?\})(?=HTTP|$)", received, re.DOTALL)
    return [(int(status), json.loads(body)) for status, body in answers]


def post(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return head(f"Content-Length: {len(body)}") + body


def test_half_closed_connection_is_answered(server: Server) -> None:
    """The client ends its side while the model runs, while further requests wait, and in the middle of a body."""
    row = {"instances": [b64(example(1))]}
    steps = {"signature_name": "loop", "inputs": [30_000]}
    started = time.monotonic()
    assert read_all(server, post(row)) == [(200, {"predictions": [3.0]})]
    assert read_all(server, post(steps), post(row), post(row)) == [
        (200, {"outputs": [30_000]}), (200, {"predictions": [3.0]}), (200, {"predictions": [3.0]})
    ]  # fmt: skip
    for incomplete in (head("Content-Length: 9") + b"{", head("Transfer-Encoding: chunked") + b"5\r\n{"):
        [first, (status, answer)] = read_all(server, post(row), incomplete)
        assert first == (200, {"predictions": [3.0]})
        assert (status, "before the end of the body" in answer["error"]) == (400, True)
    assert read_all(server) == read_all(server, b"POST / HTTP/1.1\r\nHost:") == []
    # An answer ends the connection at once: it does not wait for a time limit.
    assert time.monotonic() - started < READ_SECONDS + 20


def test_client_that_sends_on_after_an_invalid_request_receives_the_answer(server: Server) -> None:
    """Without waiting for the client's end, the kernel would reset the connection and discard the answer."""
    with socket.create_connection(("127.0.0.1", server.rest), timeout=60) as client:
        client.sendall(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n")
        select.select([client], [], [], 60)
        client.sendall(bytes(1 << 20))
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert (answer.status, set(json.loads(answer.read()))) == (400, {"error"})
        assert client.recv(1) == b""


def test_slow_clients_are_disconnected(server: Server) -> None:
    """Run all slow clients at the same time, because every one waits for its timeout."""

    def measure_disconnect(port: int, content: bytes) -> tuple[bytes, float]:
        received, started = b"", time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client, contextlib.suppress(ConnectionError):
            client.sendall(content)
            # A gRPC server sends its settings frame first, so read until it closes the connection.
            while not received.startswith(b"HTTP/1.1") and (part := client.recv(1000)):
                received += part
        return received.partition(b"\r\n")[0], time.monotonic() - started

    slow = [(server.rest, content) for content in (b"", b"POST /v1/models/line:predict HTTP/1.1\r\nHost:")]
    slow += [(server.rest, head("Content-Length: 9") + b"{")]
    slow += [(server.rest, head("Transfer-Encoding: chunked") + b"5\r\n{")]
    slow += [(server.rpc, content) for content in (b"", b"PRI * HTTP/2.0\r\n")]
    with ThreadPoolExecutor(len(slow)) as threads:
        results = list(threads.map(lambda arguments: measure_disconnect(*arguments), slow))
    assert [answer for answer, _ in results[:4]] == [b"", b"", *[b"HTTP/1.1 408 Request Timeout"] * 2]
    assert all(READ_SECONDS - 0.5 < seconds < READ_SECONDS + 20 for _, seconds in results), results


def test_grpc_message_that_does_not_arrive(server: Server) -> None:
    def no_message() -> Iterator[bytes]:
        ended.wait(60)
        yield from ()

    ended = threading.Event()
    with grpc.insecure_channel(f"127.0.0.1:{server.rpc}") as channel:
        # Send several requests, because the answer once depended on the rounding of two clocks.
        calls = [channel.stream_unary(PREDICT).future(no_message(), timeout=60) for _ in range(IN_FLIGHT // 2)]
        for call in calls:
            assert (call.code(), "expected the whole message" in call.details()) == (CODES.DEADLINE_EXCEEDED, True)
        ended.set()


def test_more_requests_in_progress_than_allowed(server: Server, statuses: set[int]) -> None:
    statuses.add(429)
    counting = predict(signature="loop", n=np.array([300_000]))
    body = {"instances": [b64(example(1))]}
    # Each API receives twice the allowed number of requests; the requests in progress keep all threads busy.
    with server.stubs() as (stub, _), ThreadPoolExecutor(2 * IN_FLIGHT) as threads:
        sent = [stub.Predict.future(counting) for _ in range(2 * IN_FLIGHT)]
        rest_codes = set(threads.map(lambda _: server.ask("POST", PATH, body)[0], sent))
        codes = Counter(call.code() for call in sent)
    assert 429 in rest_codes
    assert rest_codes <= {200, 429}
    assert codes.keys() == {CODES.OK, CODES.RESOURCE_EXHAUSTED}, codes


@pytest.mark.slow
def test_many_large_requests_at_once(server: Server, statuses: set[int]) -> None:
    statuses.add(429)
    rows = ["x" * 100] * 75_000
    body = json.dumps({"signature_name": "raw", "inputs": {"x": [[]], "name": rows}}).encode()
    message = predict(signature="raw", x=np.zeros([0], np.float32), name=rows)
    unreadable = predict(examples=[b"x" * (MAX_BYTES * 3 // 4)])
    assert MAX_BYTES * 0.9 < len(body) < MAX_BYTES
    assert MAX_BYTES * 0.9 < message.ByteSize() < MAX_BYTES

    def code(request: Any) -> Any:
        with server.stubs() as (stub, _), pytest.raises(grpc.RpcError) as caught:
            stub.Predict(request)
        return caught.value.code()

    with memory_limit(server, 800 << 20), ThreadPoolExecutor(40) as threads:
        rest_codes = set(threads.map(lambda _: server.ask("POST", PATH, body)[0], range(40)))
        codes = set(threads.map(lambda _: code(message), range(40)))
        # Rejected messages must not leave anything in memory.
        codes |= set(threads.map(lambda _: code(unreadable), range(120)))
    assert rest_codes <= {400, 408, 429}
    assert codes <= {CODES.INVALID_ARGUMENT, CODES.RESOURCE_EXHAUSTED, CODES.DEADLINE_EXCEEDED}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("h2load") is None, reason="needs h2load")
def test_thousand_grpc_connections(server: Server, statuses: set[int], tmp_path: Path) -> None:
    statuses.add(429)
    message = predict(examples=[example(1)]).SerializeToString()
    (tmp_path / "message").write_bytes(struct.pack(">?I", False, len(message)) + message)
    command = ["h2load", f"-n{CONNECTIONS}", f"-c{CONNECTIONS}", "-H", "content-type: application/grpc"]
    command += ["-H", "te: trailers", f"-d{tmp_path / 'message'}", f"http://127.0.0.1:{server.rpc}{PREDICT}"]
    with memory_limit(server, 200 << 20):
        output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert f"{CONNECTIONS} done, {CONNECTIONS} succeeded, 0 failed" in output, output


@pytest.mark.slow
def test_thousand_rest_connections(server: Server, statuses: set[int]) -> None:
    statuses.add(429)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 3 * CONNECTIONS:
        pytest.skip("the limit of open files is too low")
    body = json.dumps({"instances": [b64(example(1))]}).encode()

    async def one(go: asyncio.Event) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.rest)
        await go.wait()
        writer.write(head(f"Content-Length: {len(body)}") + body)
        status, answer = int((await reader.readline()).split()[1]), await reader.readuntil(b"}")
        assert status == 429 or answer.endswith(b'{"predictions": [3.0]}')
        writer.close()
        return status

    async def main() -> Counter[int]:
        go = asyncio.Event()
        clients = [asyncio.ensure_future(one(go)) for _ in range(CONNECTIONS)]
        go.set()
        return Counter(await asyncio.wait_for(asyncio.gather(*clients), 120))

    with memory_limit(server, 200 << 20):
        answered = asyncio.run(main())
    assert set(answered) <= {200, 429}
    assert answered[200] >= IN_FLIGHT // 2
