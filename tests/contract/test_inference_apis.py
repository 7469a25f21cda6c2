"""The Open Inference Protocol, version 2, by REST and gRPC, against a real server process and without a client package.

tests/contract/test_inference_clients.py repeats this with published clients.
"""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf

from tests.support.servers.serving import Server, b64, columns_model, example, line, serving

pytestmark = pytest.mark.both_lines

SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve two versions of `line` under labels, and `columns`."""
    models = tmp_path_factory.mktemp("models")
    for number in (1, 2):
        line(models / "line", number, slope=number + 1.0)
    columns_model(models / "columns", 1)
    labels = 'version_labels { key: "stable" value: 1 }'
    (models / "models.config").write_text(f"""
        model_config_list {{
          config {{ name: "line" base_path: "{models / "line"}" model_version_policy {{ all {{ }} }} {labels} }}
          config {{ name: "columns" base_path: "{models / "columns"}" }}
        }}""")
    options = (f"--model_config_file={models / 'models.config'}", "--allow_unverified", "--enable_batching")
    with serving(tmp_path_factory.mktemp("server"), *options) as server:
        server.wait("columns", 1)
        yield server


def tensor(name: str, datatype: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def infer(server: Server, path: str, *inputs: dict[str, Any], **fields: Any) -> tuple[int, Any]:
    return server.ask("POST", f"/v2/models/{path}/infer", {"inputs": list(inputs), **fields})


def test_health_and_metadata(server: Server) -> None:
    assert server.ask("GET", "/v2/health/live") == (200, {"live": True})
    assert server.ask("GET", "/v2/health/ready") == (200, {"ready": True})
    assert server.ask("GET", "/v2/models/line/ready") == (200, {"name": "line", "ready": True})
    assert server.ask("GET", "/v2/models/line/versions/7/ready") == (503, {"name": "line", "ready": False})
    assert server.ask("GET", "/v2/models/nope/ready") == (503, {"name": "nope", "ready": False})
    status, answer = server.ask("GET", "/v2")
    assert (status, answer) == (
        200,
        {"name": "tfx-pipeline", "version": tf.__version__, "extensions": ["binary_tensor_data"]},
    )
    expected = {
        "name": "columns",
        "versions": ["1"],
        "platform": "tensorflow_savedmodel",
        "inputs": [
            {"name": "past", "datatype": "INT64", "shape": [-1, -1]},
            {"name": "word", "datatype": "BYTES", "shape": [-1]},
            {"name": "x", "datatype": "FP32", "shape": [-1]},
        ],
        "outputs": [
            {"name": "word", "datatype": "BYTES", "shape": [-1]},
            {"name": "y", "datatype": "FP32", "shape": [-1]},
        ],
    }
    for path in ("columns", "columns/versions/1"):
        assert server.ask("GET", f"/v2/models/{path}") == (200, expected)
    assert server.ask("GET", "/v2/models/line/versions/stable")[1]["versions"] == ["2", "1"]


@pytest.mark.parametrize(
    ("path", "version", "slope"),
    [("line", "2", 3), ("line/versions/1", "1", 2), ("line/versions/2", "2", 3), ("line/versions/stable", "1", 2)],
)
def test_version_and_label(server: Server, path: str, version: str, slope: int) -> None:
    x, name = tensor("x", "FP32", [2], [1, 2.5]), tensor("name", "BYTES", [2], ["Ä", {"b64": "AA=="}])
    status, answer = infer(server, path, x, name, id="a", outputs=[{"name": "y"}, {"name": "greeting"}])
    assert (status, answer) == (
        200,
        {
            "model_name": "line",
            "model_version": version,
            "id": "a",
            "outputs": [
                tensor("y", "FP32", [2], [slope + 1, 2.5 * slope + 1]),
                tensor("greeting", "BYTES", [2], ["hello Ä", "hello \0"]),
            ],
        },
    )


def test_signature_is_chosen_by_parameter_or_names(server: Server) -> None:
    pairs = tensor("pairs", "INT64", [2, 2], [1, 2, 2**40, 0])
    status, answer = infer(server, "line", pairs, parameters={"signature_name": "pairs"})
    assert (status, answer["outputs"]) == (200, [tensor("sum", "INT64", [2], [3, 2**40])])
    status, answer = infer(server, "line", tensor("examples", "BYTES", [1], [b64(example(1))]))
    assert (status, answer["outputs"]) == (200, [tensor("y", "FP32", [1], [4])])


def test_missing_values_and_histories(server: Server) -> None:
    inputs = [tensor("x", "FP32", [2], [None, 1]), tensor("word", "BYTES", [2], ["a", None])]
    status, answer = infer(server, "columns", *inputs, tensor("past", "INT64", [2, 2], [None, [1, 2]]))
    assert (status, answer["outputs"]) == (
        200, [tensor("word", "BYTES", [2], ["a", ""]), tensor("y", "FP32", [2], [2, 6])]
    )  # fmt: skip


def test_raw_bytes_by_rest(server: Server) -> None:
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
        {"name": "name", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 11}},
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = head + struct.pack("<2f", 1, 2.5) + struct.pack("<I1sI2s", 1, b"\xff", 2, b"ab")
    connection = http.client.HTTPConnection("127.0.0.1", server.rest, timeout=60)
    connection.request("POST", "/v2/models/line/infer", body, {"Inference-Header-Content-Length": str(len(head))})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    outputs = {
        output["name"]: output["parameters"]["binary_data_size"] for output in json.loads(content[:length])["outputs"]
    }
    assert outputs == {"greeting": 23, "name_bytes": 11, "y": 8}
    expected = struct.pack("<I7sI8s", 7, b"hello \xff", 8, b"hello ab") + struct.pack("<I1sI2s", 1, b"\xff", 2, b"ab")
    assert content[length:] == expected + struct.pack("<2f", 4, 8.5)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("nope", {"inputs": []}, 404, "expected a model of ['columns', 'line'], received 'nope'"),
        ("line/versions/7", {"inputs": []}, 404, "version 7 is not loaded"),
        ("line/versions/nope", {"inputs": []}, 400, "expected a label of ['stable'], received 'nope'"),
        ("line", {"inputs": []}, 400, "signature 'serving_default': expected the inputs ['examples'], received []"),
        ("line", {"instances": [1]}, 400, "inputs: expected a list, received null"),
        ("line", b"{", 400, "expected a JSON object"),
        ("line", {"inputs": [], "parameters": {"signature_name": "nope"}}, 400, "expected a signature of ['loop', "),
        ("line", {"inputs": [], "parameters": {"signature_name": "\ud800"}}, 400, "expected names of a model"),
        (
            "line",
            {"inputs": [tensor("examples", "FP32", [1], [1])]},
            400,
            "input 'examples': expected the datatype BYTES, received FP32",
        ),
        (
            "line",
            {"inputs": [tensor("examples", "BYTES", [1], ["a"])], "outputs": [{"name": "z"}]},
            400,
            "signature 'serving_default': expected outputs of ['y'], received 'z'",
        ),
    ],
)
def test_invalid_requests(server: Server, path: str, body: Any, status: int, message: str) -> None:
    answered, answer = server.ask("POST", f"/v2/models/{path}/infer", body)
    assert (answered, message in answer["error"]) == (status, True), answer


@pytest.mark.extended
def test_server_without_a_loaded_model_is_live_and_not_ready(tmp_path: Path) -> None:
    options = ("--model_name=line", f"--model_base_path={tmp_path / 'line'}", "--allow_unverified")
    with serving(tmp_path / "server", *options) as server:
        assert server.ask("GET", "/v2/health/live") == (200, {"live": True})
        assert server.ask("GET", "/v2/health/ready") == (503, {"ready": False})
        assert call(server, "ServerReady") == b""
        line(tmp_path / "line", 1)
        server.until(lambda: server.ask("GET", "/v2/health/ready") == (200, {"ready": True}))
        assert call(server, "ServerReady") == b"\x08\x01"


# gRPC: messages written by hand, so that a wrong field number is found.


def field(number: int, content: bytes | str | list[int] | int) -> bytes:
    """Encode a field: a message, text, packed integers below 128, or one integer below 128."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    content = content.encode() if isinstance(content, str) else bytes(content)
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def call(server: Server, method: str, message: bytes = b"") -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{server.rpc}") as channel:
        return bytes(channel.unary_unary(SERVICE + method)(message, timeout=60))


def test_grpc_health_and_metadata(server: Server) -> None:
    assert call(server, "ServerLive") == call(server, "ServerReady") == field(1, 1)
    assert call(server, "ModelReady", field(1, "line") + field(2, "stable")) == field(1, 1)
    assert call(server, "ModelReady", field(1, "line") + field(2, "7")) == b""
    metadata = field(1, "tfx-pipeline") + field(2, tf.__version__) + field(3, "binary_tensor_data")
    assert call(server, "ServerMetadata") == metadata
    [past, *_] = server.ask("GET", "/v2/models/columns")[1]["inputs"]
    assert past == {"name": "past", "datatype": "INT64", "shape": [-1, -1]}
    minus_one = b"\xff" * 9 + b"\x01"
    first_input = field(1, "past") + field(2, "INT64") + field(3, minus_one * 2)
    answer = call(server, "ModelMetadata", field(1, "columns"))
    assert answer.startswith(
        field(1, "columns") + field(2, "1") + field(3, "tensorflow_savedmodel") + field(4, first_input)
    )


SPEC = field(1, "line") + field(2, "1") + field(3, "id")
SIGNATURE = field(4, field(1, "signature_name") + field(2, field(3, "pairs")))
PAIRS = field(1, "pairs") + field(2, "INT64") + field(3, [1, 2])


def test_grpc_inference_with_typed_contents(server: Server) -> None:
    answer = call(server, "ModelInfer", SPEC + SIGNATURE + field(5, PAIRS + field(5, field(3, [7, 8]))))
    total = field(1, "sum") + field(2, "INT64") + field(3, [1]) + field(5, field(3, [15]))
    assert answer == SPEC + field(5, total)


def test_grpc_inference_with_raw_contents(server: Server) -> None:
    message = SPEC + SIGNATURE + field(5, PAIRS) + field(6, field(1, "sum")) + field(7, struct.pack("<2q", 7, 8))
    total = field(1, "sum") + field(2, "INT64") + field(3, [1])
    assert call(server, "ModelInfer", message) == SPEC + field(5, total) + field(6, struct.pack("<q", 15))


def test_grpc_inference_of_strings_and_floats(server: Server) -> None:
    x = field(1, "x") + field(2, "FP32") + field(3, [1]) + field(5, field(6, struct.pack("<f", 1.5)))
    name = field(1, "name") + field(2, "BYTES") + field(3, [1]) + field(5, field(8, b"\xff"))
    requested = field(6, field(1, "name_bytes")) + field(6, field(1, "y"))
    answer = call(server, "ModelInfer", SPEC + field(5, x) + field(5, name) + requested)
    expected = field(1, "name_bytes") + field(2, "BYTES") + field(3, [1]) + field(5, field(8, b"\xff"))
    y = field(1, "y") + field(2, "FP32") + field(3, [1]) + field(5, field(6, struct.pack("<f", 4)))
    assert answer == SPEC + field(5, expected) + field(5, y)


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (field(1, "nope"), grpc.StatusCode.NOT_FOUND, "expected a model of ['columns', 'line'], received 'nope'"),
        (
            SPEC + field(7, b"a"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "expected raw_input_contents of 0 inputs, received 1",
        ),
        (
            SPEC + field(5, PAIRS) + field(5, PAIRS),
            grpc.StatusCode.INVALID_ARGUMENT,
            "expected every input once, received 'pairs' again",
        ),
        (
            SPEC + field(5, field(1, "x") + field(2, "FP16")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "input 'x': expected raw_input_contents, or a datatype of BOOL",
        ),
        (b"\xff", grpc.StatusCode.INVALID_ARGUMENT, "expected a message of the method"),
    ],
)
def test_grpc_rejects(server: Server, message: bytes, code: Any, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(server, "ModelInfer", message)
    assert (caught.value.code(), text in caught.value.details()) == (code, True), caught.value.details()


def test_requests_are_counted_and_batched(server: Server) -> None:
    pairs = [[row, 1] for row in range(300)]
    status, answer = infer(
        server, "line", tensor("pairs", "INT64", [300, 2], pairs), parameters={"signature_name": "pairs"}
    )
    assert (status, answer["outputs"][0]["data"]) == (200, np.sum(pairs, axis=1).tolist())
    text = server.ask("GET", "/monitoring/prometheus/metrics")[1].decode()
    for api in ("REST", "GRPC"):
        assert f'entrypoint="{api}",model_name="line",signature="pairs",status="OK"' in text, text
