"""Every route and every RPC of TensorFlow Serving's two APIs, against a real server process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tensorflow as tf
from google.protobuf import json_format
from prometheus_client.parser import text_string_to_metric_families
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    prediction_log_pb2,
)

from components.data import request_log
from tests.support.data.old_models import classifier
from tests.support.servers.serving import Server, b64, example, line, predict, serving

pytestmark = pytest.mark.both_lines

SLOPES = {1: 2.0, 2: 3.0}


def config(folder: Path, *models: str) -> str:
    models_text = " ".join(f'config {{ name: "{name}" base_path: "{folder / name}" {more} }}' for name, _, more in
                    (model.partition(" ") for model in models))  # fmt: skip
    return f"model_config_list {{ {models_text} }}"


LABELS = 'version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 }'
MODELS = (f"line model_version_policy {{ all {{ }} }} {LABELS}", "old")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for number, slope in SLOPES.items():
        line(folder / "line", number, slope, manifest=True)
    classifier(folder / "old", 1)
    return folder


@pytest.fixture(scope="module", params=["together", pytest.param("isolated", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve two versions of `line` under labels, and `old`; in one process, or in a process per version."""
    (models / "models.config").write_text(config(models, *MODELS))
    folder = tmp_path_factory.mktemp("server")
    options = (f"--model_config_file={models / 'models.config'}", "--enable_batching", "--allow_unverified")
    isolated = ("--isolate_versions",) if request.param == "isolated" else ()
    with serving(folder, *options, *isolated) as server:
        server.wait("old", 1)
        yield server


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("line:predict", {"instances": [b64(example(1)), b64(example(2))]}, {"predictions": [4, 7]}),
        ("line:predict", {"instances": [{"examples": b64(example(1))}]}, {"predictions": [4]}),
        ("line:predict", {"inputs": [b64(example(1))]}, {"outputs": [4]}),
        ("line:predict", {"inputs": {"examples": [b64(example(1))]}}, {"outputs": [4]}),
        ("line/versions/1:predict", {"instances": [b64(example(1))]}, {"predictions": [3]}),
        ("line/versions/2:predict", {"instances": [b64(example(1))]}, {"predictions": [4]}),
        ("line/labels/stable:predict", {"instances": [b64(example(1))]}, {"predictions": [3]}),
        ("line/labels/canary:predict", {"instances": [b64(example(1))]}, {"predictions": [4]}),
        (
            "line:predict",
            {"signature_name": "raw", "instances": [{"x": 1, "name": "Ä"}, {"x": 1.5, "name": b64(b"\0")}]},
            {
                "predictions": [
                    {"y": 4, "greeting": "hello Ä", "name_bytes": b64("Ä".encode())},
                    {"y": 5.5, "greeting": "hello \0", "name_bytes": b64(b"\0")},
                ]
            },
        ),
        (
            "line:predict",
            {"signature_name": "raw", "inputs": {"x": [1], "name": ["a"]}},
            {"outputs": {"y": [4], "greeting": ["hello a"], "name_bytes": [b64(b"a")]}},
        ),
        # Names of columns choose the signature raw.
        (
            "line:predict",
            {"inputs": {"x": [1], "name": ["a"]}},
            {"outputs": {"y": [4], "greeting": ["hello a"], "name_bytes": [b64(b"a")]}},
        ),
        ("line:predict", {"signature_name": "pairs", "instances": [[1, 2], [2**40, 0]]}, {"predictions": [3, 2**40]}),
        ("line:predict", {"signature_name": "loop", "instances": [2, 1]}, {"predictions": [2, 2]}),
        (
            "old:predict",
            {"signature_name": "facts", "inputs": [1, 2]},
            {"outputs": {"name": "old", "rows": 2, "doubled": [2, 4]}},
        ),
    ],
)  # fmt: skip
def test_rest_answers(server: Server, path: str, body: Any, expected: Any) -> None:
    assert server.ask("POST", f"/v1/models/{path}", body) == (200, expected)


def test_request_with_an_input_of_serving_default_is_not_for_raw(server: Server) -> None:
    body = {"instances": [{"examples": b64(example(1)), "x": 1}]}
    status, answer = server.ask("POST", "/v1/models/line:predict", body)
    assert (status, answer["error"]) == (
        400, "signature 'serving_default': expected inputs of ['examples'], received 'x'"
    )  # fmt: skip


def outputs(response: Any) -> dict[str, Any]:
    return {name: tf.make_ndarray(value).tolist() for name, value in response.outputs.items()}


@pytest.mark.parametrize(
    ("number", "label", "expected"), [(None, None, 2), (1, None, 1), (2, None, 2), (None, "stable", 1)]
)
def test_grpc_predicts_by_version_and_label(
    server: Server, number: int | None, label: str | None, expected: int
) -> None:
    request = predict(examples=[example(1), example(2)])
    if number is not None:
        request.model_spec.version.value = number
    if label:
        request.model_spec.version_label = label
    with server.stubs() as (stub, _):
        response = stub.Predict(request)
    spec, slope = response.model_spec, SLOPES[expected]
    assert outputs(response) == {"y": [slope + 1, 2 * slope + 1]}
    # Like TensorFlow Serving 2.21. Clients in other languages read this field, not tensor_content.
    assert response.outputs["y"].float_val[:] == [slope + 1, 2 * slope + 1]
    assert (spec.name, spec.version.value, spec.signature_name) == ("line", expected, "serving_default")


@pytest.mark.parametrize("names", [[], ["y"], ["greeting", "y"]])
def test_output_filter_is_kept(server: Server, names: list[str]) -> None:
    request = predict(signature="raw", x=np.float32([1]), name=[b"\xff"])
    request.output_filter.extend(names)
    everything = {"y": [4], "greeting": [b"hello \xff"], "name_bytes": [b"\xff"]}
    with server.stubs() as (stub, _):
        assert outputs(stub.Predict(request)) == {name: everything[name] for name in names or everything}


def test_grpc_gives_single_values(server: Server) -> None:
    with server.stubs() as (stub, _):
        response = stub.Predict(predict("old", "facts", x=np.float32([1, 2])))
    assert outputs(response) == {"name": b"old", "rows": 2, "doubled": [2, 4]}


def test_states_by_model_and_version(server: Server) -> None:
    def status_of(*numbers: int) -> Any:
        status = {"error_code": "OK", "error_message": ""}
        return {
            "model_version_status": [
                {"version": str(number), "state": "AVAILABLE", "status": status} for number in numbers
            ]
        }

    assert server.ask("GET", "/v1/models/line") == (200, status_of(2, 1))
    assert server.ask("GET", "/v1/models/line/versions/1") == (200, status_of(1))
    # TensorFlow Serving ignores the label.
    assert server.ask("GET", "/v1/models/line/labels/canary") == (200, status_of(2, 1))
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "line"
    with server.stubs() as (_, stub):
        response = stub.GetModelStatus(request)
    assert [version.version for version in response.model_version_status] == [2, 1]


def test_metadata_is_the_saved_models_own(server: Server, models: Path) -> None:
    saved = saved_model_pb2.SavedModel.FromString((models / "line" / "1" / "saved_model.pb").read_bytes())
    expected = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in saved.meta_graphs[0].signature_def.items():
        if not name.startswith("__"):
            expected.signature_def[name].CopyFrom(signature)
    assert set(expected.signature_def) == {"serving_default", "raw", "pairs", "loop"}
    status, answer = server.ask("GET", "/v1/models/line/versions/1/metadata")
    assert (status, answer["model_spec"]) == (200, {"name": "line", "signature_name": "", "version": "1"})
    rest_signatures = json_format.ParseDict(
        answer["metadata"]["signature_def"], get_model_metadata_pb2.SignatureDefMap()
    )
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name, request.model_spec.version_label = "line", "stable"
    rpc = get_model_metadata_pb2.SignatureDefMap()
    with server.stubs() as (stub, _):
        response = stub.GetModelMetadata(request)
    assert response.metadata["signature_def"].Unpack(rpc)
    assert rest_signatures == rpc == expected


def test_thousand_rows_are_predicted_alike_by_rest_grpc_and_in_process(server: Server, models: Path) -> None:
    rows = [example(float(x)) for x in np.random.default_rng(7).normal(size=1000)]
    loaded = tf.saved_model.load(str(models / "line" / "2"))
    expected = loaded.signatures["serving_default"](tf.constant(rows))["y"].numpy()
    parts = [rows[start : start + 8] for start in range(0, len(rows), 8)]

    def by_rest(part: list[bytes]) -> list[float]:
        status, answer = server.ask("POST", "/v1/models/line:predict", {"instances": [b64(row) for row in part]})
        assert status == 200, answer
        return list(answer["predictions"])

    with server.stubs() as (stub, _), ThreadPoolExecutor(8) as threads:
        rest_answers = np.concatenate(list(threads.map(by_rest, parts)))
        answers = threads.map(lambda part: stub.Predict(predict(examples=part)), parts)
        rpc = np.concatenate([tf.make_ndarray(answer.outputs["y"]) for answer in answers])
    # Exactly equal: JSON keeps all digits of a float32, and batching does not change a request's answer.
    assert rpc.dtype == expected.dtype
    np.testing.assert_array_equal(rpc, expected)
    np.testing.assert_array_equal(rest_answers, expected.astype(float))


def test_prometheus_reads_the_metrics(server: Server) -> None:
    server.ask("POST", "/v1/models/line/versions/1:predict", {"instances": [b64(example(1))]})
    status, text = server.ask("GET", "/monitoring/prometheus/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert status == 200
    assert {
        ":tensorflow:serving:request_count",
        ":tensorflow:serving:request_latency",
        ":tensorflow:serving:batching_session:processed_batch_size",
    } <= families.keys()
    counted = families[":tensorflow:serving:request_count"].samples
    labels = {"model_name": "line", "entrypoint": "REST", "status": "OK", "version": "1"}
    labels["signature"] = "serving_default"
    assert next(sample.value for sample in counted if sample.labels == labels) >= 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/nope", 404),
        ("GET", "/v1/models/%FF", 404),
        ("GET", "/v1/models/%ED%A0%80/labels/%FF", 404),
        ("GET", "/v1/models/line/versions/7", 404),
        ("GET", "/v1/models/line/labels/nope/metadata", 400),
        ("GET", "/v1/models/line/versions/7/metadata", 404),
        ("POST", "/v1/models/nope:predict", 404),
        ("POST", "/v1/models/line/versions/7:predict", 404),
        ("POST", "/v1/models/line/labels/nope:predict", 400),
        ("POST", "/v1/models/line:classify", 404),
        ("GET", "/v1/models/line:predict", 405),
        ("GET", "/", 404),
        ("GET", "http://x/v1/models/nope", 404),
        ("OPTIONS", "*", 404),
    ],
)
def test_unknown_models_and_paths(server: Server, method: str, path: str, status: int) -> None:
    answered, answer = server.ask(method, path, {"instances": [b64(example(1))]} if method == "POST" else None)
    assert answered == status
    assert set(answer) == {"error"}


def test_status_405_names_the_methods_of_the_path(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.rest)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models/line:predict")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.extended
@pytest.mark.parametrize("api", ["port", "rest_api_port"])
def test_port_that_another_server_has_is_not_shared(server: Server, models: Path, tmp_path: Path, api: str) -> None:
    used_port = server.rpc if api == "port" else server.rest
    model_options = ("--model_name=line", f"--model_base_path={models / 'line'}")
    raises = pytest.raises(
        AssertionError, match=rf"cannot listen at 127.0.0.1:{used_port}: Address already in use; end what "
    )
    with raises, serving(tmp_path, f"--{api}={used_port}", *model_options):
        pass


@pytest.mark.extended
def test_versions_come_and_go_with_their_folders_and_labels_with_the_config(models: Path, tmp_path: Path) -> None:
    """Follow one server from an empty folder through pushes, a rollback and a reload."""
    shutil.copytree(models / "line" / "1", tmp_path / "line" / "1")
    file = tmp_path / "models.config"

    def want(stable: int, *numbers: int) -> str:
        chosen = " ".join(f"versions: {number}" for number in numbers)
        policy = f"model_version_policy {{ specific {{ {chosen} }} }}"
        return config(tmp_path, f'line {policy} version_labels {{ key: "stable" value: {stable} }}')

    def replace_config(text: str) -> None:
        (tmp_path / ".models.config").write_text(text)
        (tmp_path / ".models.config").replace(file)

    def answers() -> tuple[int, Any]:
        return server.ask("POST", "/v1/models/line/labels/stable:predict", {"instances": [b64(example(1))]})

    replace_config("")
    options = (f"--model_config_file={file}", "--allow_unverified")
    with serving(tmp_path / "server", *options) as server:
        assert server.ask("GET", "/v1/models/line")[0] == 404
        replace_config(want(1, 1, 2))
        server.wait("line", 1)
        assert answers() == (200, {"predictions": [3]})
        # A version with one byte changed is not loaded, with the reason; repaired, it is.
        shutil.copytree(models / "line" / "2", tmp_path / "copy")
        data = next((tmp_path / "copy" / "variables").glob("*.data-*"))
        good = data.read_bytes()
        data.write_bytes(bytes([good[0] ^ 1]) + good[1:])
        (tmp_path / "copy").rename(tmp_path / "line" / "2")
        server.wait("line", 2, "END")
        version_status = server.ask("GET", "/v1/models/line/versions/2")[1]["model_version_status"][0]["status"]
        assert version_status["error_code"] == "UNKNOWN"
        assert version_status["error_message"].endswith(
            f"variables/{data.name} was changed after the push: its content differs"
        )
        assert server.ask("POST", "/v1/models/line/versions/2:predict", {"instances": [1]})[0] == 404
        replace_config(want(2, 1, 2))
        replace_config("model_config_list {")
        server.until(lambda: "the models cannot be updated" in server.log.read_text())
        assert answers() == (200, {"predictions": [3]})
        replace_config(want(2, 1, 2))
        (tmp_path / "line" / "2" / "variables" / data.name).write_bytes(good)
        server.until(lambda: answers() == (200, {"predictions": [4]}))
        # Roll back: version 2 is unloaded.
        replace_config(want(1, 1))
        server.until(lambda: answers() == (200, {"predictions": [3]}))
        server.wait("line", 2, "END")
        # Replace the models.
        replace_config(config(models, "old"))
        server.wait("old", 1)
        server.until(lambda: server.ask("GET", "/v1/models/line")[0] == 404)


@pytest.mark.extended
def test_after_sigterm_what_is_in_flight_is_answered_and_recorded(models: Path, tmp_path: Path) -> None:
    base = f"--model_base_path={models / 'line'}"
    log = f"--request_log={tmp_path / 'log'}"
    with serving(tmp_path / "server", "--model_name=line", base, log, "--enable_batching") as server:
        server.wait("line", 2)
        body = json.dumps({"instances": [b64(example(5))]}).encode()
        with server.stubs() as (stub, _), socket.create_connection(("127.0.0.1", server.rest)) as client:
            head = f"POST /v1/models/line:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
            before = psutil.Process(server.process.pid).cpu_times().user
            counting = stub.Predict.future(predict(signature="loop", n=np.array([100_000])))
            server.until(lambda: psutil.Process(server.process.pid).cpu_times().user - before > 0.2)
            assert not counting.done()
            server.process.terminate()
            server.until(lambda: not _listens(server.rest))
            client.sendall(body)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            assert outputs(counting.result()) == {"steps": [100_000]}
        assert server.process.wait(60) == 0
    records = tf.data.TFRecordDataset([str(path) for path in (tmp_path / "log").iterdir()], "GZIP")
    logs = [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records.as_numpy_iterator()]
    logged = {log.request.model_spec.signature_name: (log.request.inputs, outputs(log.response)) for log in logs}
    assert logged["serving_default"][0]["examples"].string_val[:] == [example(5)]
    assert logged["serving_default"][1] == {"y": [16]}
    assert logged["loop"][1] == {"steps": [100_000]}


@pytest.mark.extended
def test_key_is_recorded_and_not_given_to_the_model(models: Path, tmp_path: Path) -> None:
    options = ("--model_name=line", f"--model_base_path={models / 'line'}", f"--request_log={tmp_path / 'log'}")
    with serving(tmp_path / "server", *options, "--request_log_key=id", "--enable_batching") as server:
        server.wait("line", 2)

        def ask(*rows: dict[str, Any], signature: str = "raw") -> tuple[int, Any]:
            body = {"signature_name": signature, "instances": list(rows)}
            return server.ask("POST", "/v1/models/line:predict", body)

        for rows in ([{"x": 1, "name": "a", "id": 7}, {"x": 2, "name": "b", "id": 8}], [{"x": 1, "name": "a"}]):
            status, answer = ask(*rows)
            assert (status, [prediction["y"] for prediction in answer["predictions"]]) == (200, [4.0, 7.0][: len(rows)])
        with server.stubs() as (stub, _):
            columns = {"x": np.float32([1]), "name": ["a"]}
            assert outputs(stub.Predict(predict(signature="raw", **columns, id=["t"])))["y"] == [4.0]
            with pytest.raises(grpc.RpcError) as refused:
                stub.Predict(predict(signature="raw", **columns, id=["t", "u"]))
        assert (
            "expected the key 'id' to have an integer or a string for each row, received [2]" in refused.value.details()
        )
        for row, signature, message in (
            ({"x": 1, "name": "a", "id": 1.5}, "raw", "input 'id': expected string"),
            ({"x": 1, "name": "a", "idd": 1}, "raw", "expected inputs of ['name', 'x'], received 'idd'"),
            ({"n": 1, "id": 1}, "loop", "expected the inputs ['n'], received ['id', 'n']"),
        ):
            status, answer = ask(row, signature=signature)
            assert (status, message in answer["error"]) == (400, True), answer
        assert server.stop() == 0
    read = request_log.read([file.path for file in request_log.files([str(tmp_path / "log")])], 100)[2]
    assert read.columns["id"].to_pylist() == [b"7", b"8", None, b"t"]
    assert read.columns["x"].to_pylist() == [1.0, 2.0, 1.0, 1.0]


def _listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


_PARENT = """
import pathlib, signal, sys
from tests.support.servers.serving import serving

with serving(pathlib.Path(sys.argv[1]), *sys.argv[2:]):
    signal.pause()
"""


@pytest.mark.extended
def test_server_of_a_test_ends_with_the_process_of_the_test(models: Path, tmp_path: Path) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "parent.log"
    options = ["--model_name=line", f"--model_base_path={models / 'line'}"]
    with log.open("wb") as output:
        parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path), *options], stderr=output)
    try:
        server = Server(parent, 0, 0, log)
        server.until(ready.exists)
        ports = json.loads(ready.read_text())
        ends, server.rest = os.pidfd_open(ports["pid"]), ports["rest_port"]
        server.wait("line", 2)
    finally:
        parent.kill()
        parent.wait()
    assert select.select([ends], [], [], 60)[0]
    os.close(ends)
