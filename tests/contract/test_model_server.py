"""The local server answers as TensorFlow Serving's own server does, but for the differences that are listed here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest
import tensorflow as tf
import yaml
from google.protobuf import text_format
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import classification_pb2, get_model_metadata_pb2, get_model_status_pb2
from tensorflow_serving.apis import model_management_pb2 as management

from tests.support.data.old_models import classifier
from tests.support.runs.command import ROOT
from tests.support.servers.model_server import model_server, needs_model_server
from tests.support.servers.serving import Server, b64, columns_model, example, line, predict, serving

pytestmark = [pytest.mark.slow, needs_model_server]

CODES = grpc.StatusCode
DEPLOY = ROOT / "deploy"
METRICS = "/monitoring/prometheus/metrics"
LABELS = 'version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 }'
MODELS = {"line": f"model_version_policy {{ all {{ }} }} {LABELS}", "old": "", "columns": "", "kinds": ""}


class _Kinds(tf.Module):
    """Signatures with dtypes, shapes and values that the other models do not have."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def numbers(self, x: Any) -> Any:
        return {"log": tf.math.log(x), "inverse": 1 / x, "double": tf.cast(x, tf.float64), "positive": x > 0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float16, name="x")])
    def half(self, x: Any) -> Any:
        return {"y": tf.cast(x, tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def to_half(self, x: Any) -> Any:
        return {"y": tf.cast(x, tf.float16)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def scalar(self, x: Any) -> Any:
        return {"y": x + 1}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="x")])
    def echo(self, x: Any) -> Any:
        return {"y": x}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.bool, name="x")])
    def flags(self, x: Any) -> Any:
        return {"y": x}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64, name="x")])
    def matrix(self, x: Any) -> Any:
        return {"y": x}


class Servers(NamedTuple):
    """Both servers, with the same models."""

    real: Server
    local: Server


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the models and their models.config."""
    folder = tmp_path_factory.mktemp("models")
    line(folder / "line", 1, slope=2.0)
    line(folder / "line", 2, slope=3.0)
    classifier(folder / "old", 1)
    columns_model(folder / "columns", 1)
    kinds = _Kinds()
    names = ("numbers", "half", "to_half", "scalar", "echo", "flags", "matrix")
    tf.saved_model.save(kinds, str(folder / "kinds" / "1"), {name: getattr(kinds, name) for name in names})
    (folder / "models.config").write_text(model_config(folder, **MODELS))
    return folder


def model_config(folder: Path, **models: str) -> str:
    """Return a ModelServerConfig; the values are further fields of the models."""
    texts = [
        f'config {{ name: "{name}" base_path: "{folder / name}" model_platform: "tensorflow" {fields} }}'
        for name, fields in models.items()
    ]
    return f"model_config_list {{ {' '.join(texts)} }}"


@pytest.fixture(scope="module")
def servers(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    config = f"--model_config_file={models / 'models.config'}"
    real_options = (
        config,
        "--allow_version_labels_for_unavailable_models=true",
        f"--monitoring_config_file={DEPLOY / 'serving' / 'monitoring.config'}",
    )
    with model_server(folder, *real_options) as real, serving(folder, config, "--allow_unverified") as local:
        for server in (real, local):
            for name in MODELS:
                server.wait(name, 2 if name == "line" else 1)
        yield Servers(real, local)


ROW = b64(example(1))
ALIKE: list[tuple[str, Any]] = [
    ("/v1/models/line", None),
    ("/v1/models/line/versions/1", None),
    ("/v1/models/line/labels/stable", None),
    ("/v1/models/line/labels/nope", None),
    ("/v1/models/nope", None),
    ("/v1/models/line/versions/7", None),
    ("/v1/models/line/labels/nope/metadata", None),
    ("/v1/models/line/versions/7/metadata", None),
    ("/v1/models/nope/metadata", None),
    *(
        (f"/v1/models/{path}:predict", {"instances": [ROW]})
        for path in (
            "line",
            "line/versions/1",
            "line/versions/7",
            "line/labels/stable",
            "line/labels/nope",
            "nope",
        )
    ),
    *(
        ("/v1/models/line:predict", body)
        for body in (
            *(b"", b"{", b"[]", b"null", b"{}", b"\xff", b'{"instances": [1]} x'),
            *({"instances": rows} for rows in ([], {}, 1, None, [1], [None], ["x"], [ROW, 1], [[ROW]])),
            *({"instances": [{"b64": text}]} for text in ("!!!", 1, "AA", "A-_=", b64(b"no Example")["b64"])),
            {"instances": [{"examples": ROW}]},
            {"instances": [{"examples": ROW, "z": 1}]},
            {"instances": [{"z": 1}]},
            {"inputs": [ROW]},
            {"inputs": {"examples": [ROW]}},
            {"inputs": []},
            {"inputs": None},
            {"inputs": [ROW], "instances": [ROW]},
            {"instances": [ROW], "signature_name": "nope"},
            {"instances": [ROW], "signature_name": 3},
            {"instances": [ROW], "signature_name": ""},
        )
    ),
    *(
        ("/v1/models/line:predict", {"signature_name": "raw", "instances": rows})
        for rows in (
            [{"x": 1, "name": "Ä"}, {"name": b64(b"b"), "x": 2.5}],
            [{"x": 1}],
            [{"x": 1, "name": "a"}, {"x": 1}],
            [{"x": 1, "name": "a"}, 3],
            *([{"x": x, "name": "a"}] for x in ("1", True, None)),
            [{"x": 1, "name": 2}],
            [1],
        )
    ),
    *(
        ("/v1/models/line:predict", {"signature_name": "pairs", "instances": rows})
        for rows in ([[1, 2]], [[1.5, 2]], [[1], [1, 2]], [[2**63, 0]], [[2**63 - 1, 0]], [["1", 2]], [[True, 1]])
    ),
    *(
        ("/v1/models/kinds:predict", {"signature_name": name, "instances": rows})
        for name, rows in (
            ("numbers", [-1, 0, 1.5]),
            ("numbers", [1e-7, 1e30]),
            ("half", [1.5]),
            ("to_half", [1.5]),
            ("flags", [True, False]),
            ("flags", [1]),
            ("echo", ["", "é", "a\0b", "\U0001f600"]),
            ("echo", [1]),
            ("matrix", [[1, 2], [3, 4]]),
            ("matrix", [[1, 2], [3]]),
        )
    ),
    ("/v1/models/kinds:predict", b'{"signature_name": "numbers", "instances": [NaN, Infinity, -Infinity]}'),
    ("/v1/models/kinds:predict", {"signature_name": "scalar", "inputs": 1.5}),
    ("/v1/models/old:predict", {"signature_name": "facts", "inputs": [1, 2]}),
    ("/v1/models/old:predict", {"signature_name": "strict", "instances": [-1]}),
    ("/v1/models/columns:predict", {"signature_name": "raw", "instances": [{"x": 1, "word": "a", "past": [1, 2]}]}),
]
"""Paths and bodies that both servers answer with the same status, and if it is 200 with the same content."""


def to_text(value: Any) -> str:
    """Return JSON with sorted names and with numbers as float32, of which TensorFlow Serving writes nine digits.

    The text of NaN is equal to itself, unlike NaN.
    """
    return json.dumps(json.loads(json.dumps(value), parse_float=lambda text: float(np.float32(text))), sort_keys=True)


def ask(server: Server, path: str, body: Any) -> tuple[int, Any]:
    return server.ask("GET" if body is None else "POST", path, body)


@pytest.mark.parametrize(("path", "body"), ALIKE, ids=[f"{number}" for number in range(len(ALIKE))])
def test_both_servers_answer_alike_over_rest(servers: Servers, path: str, body: Any) -> None:
    real, local = ask(servers.real, path, body), ask(servers.local, path, body)
    assert local[0] == real[0], (real, local)
    if real[0] == 200:
        assert to_text(local[1]) == to_text(real[1])
    else:
        assert (set(real[1]), set(local[1])) == ({"error"}, {"error"})


DIFFERENT: list[tuple[str, Any, int, int]] = [
    # Paths that the API does not have.
    ("/v1/models/line:predict", None, 400, 405),
    ("/v1/models/line/labels", None, 400, 404),
    # TensorFlow Serving gives a graph tensors of another shape than the signature has, and ignores unknown names.
    ("/v1/models/line:predict", {"signature_name": "pairs", "instances": [[1, 2, 3]]}, 200, 400),
    ("/v1/models/line:predict", {"signature_name": "raw", "inputs": {"x": [1, 2], "name": ["a"]}}, 200, 400),
    ("/v1/models/line:predict", {"inputs": {"examples": [ROW], "x": 1}}, 200, 400),
    # The local server accepts null as a missing value, an overflow as infinity, and columns without `signature_name`.
    (
        "/v1/models/columns:predict",
        {"signature_name": "raw", "instances": [{"x": None, "word": "a", "past": [1]}]},
        400,
        200,
    ),
    ("/v1/models/kinds:predict", b'{"signature_name": "numbers", "instances": [1e400]}', 400, 200),
    ("/v1/models/columns:predict", {"instances": [{"x": 1, "word": "a", "past": [1]}]}, 400, 200),
    # The APIs of classification and regression.
    ("/v1/models/old:classify", {"examples": [{"x": 0.25}]}, 200, 404),
    # The Open Inference Protocol.
    ("/v2/health/live", None, 404, 200),
]
"""Path, body, and the statuses of TensorFlow Serving and of the local server, as in docs/explanation/protocols.md."""


@pytest.mark.parametrize(("path", "body", "real", "local"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_servers_differ_in_these_answers(servers: Servers, path: str, body: Any, real: int, local: int) -> None:
    assert (ask(servers.real, path, body)[0], ask(servers.local, path, body)[0]) == (real, local)


def code(call: Any, request: Any) -> grpc.StatusCode:
    try:
        call(request)
    except grpc.RpcError as error:
        return error.code()
    return CODES.OK


def labelled(label: str) -> Any:
    request = predict(examples=[example(1)])
    request.model_spec.version_label = label
    return request


def filtered(name: str) -> Any:
    request = predict(examples=[example(1)])
    request.output_filter.append(name)
    return request


PREDICTIONS = {
    "good": (predict(examples=[example(1)]), CODES.OK),
    "label": (labelled("stable"), CODES.OK),
    "unknown label": (labelled("nope"), CODES.INVALID_ARGUMENT),
    "unknown model": (predict("nope", examples=[example(1)]), CODES.NOT_FOUND),
    "unknown signature": (predict(signature="nope", examples=[example(1)]), CODES.FAILED_PRECONDITION),
    "unknown output": (filtered("nope"), CODES.INVALID_ARGUMENT),
    "missing input": (predict(), CODES.INVALID_ARGUMENT),
    "unknown input": (predict(z=[example(1)]), CODES.INVALID_ARGUMENT),
    "dtype": (predict(examples=[1.5]), CODES.INVALID_ARGUMENT),
    "not an Example": (predict(examples=[b"no Example"]), CODES.INVALID_ARGUMENT),
    "refused by the graph": (predict("old", "strict", x=np.float32([-1])), CODES.INVALID_ARGUMENT),
}


@pytest.mark.parametrize(("request_", "expected"), PREDICTIONS.values(), ids=PREDICTIONS)
def test_both_servers_predict_alike_over_grpc(servers: Servers, request_: Any, expected: grpc.StatusCode) -> None:
    for server in servers:
        with server.stubs() as (stub, _):
            assert code(stub.Predict, request_) is expected
    if expected is CODES.OK:
        with servers.real.stubs() as (real, _), servers.local.stubs() as (local, _):
            assert local.Predict(request_) == real.Predict(request_)


def test_both_servers_have_the_same_metadata_and_states(servers: Servers) -> None:
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name, metadata.model_spec.version_label = "line", "stable"
    states = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "line", "version_label": "nope"})
    with servers.real.stubs() as (real, real_models), servers.local.stubs() as (local, local_models):
        maps = [get_model_metadata_pb2.SignatureDefMap() for _ in servers]
        for stub, signatures in zip((real, local), maps, strict=True):
            response = stub.GetModelMetadata(metadata)
            assert (response.model_spec.name, response.model_spec.version.value) == ("line", 1)
            response.metadata["signature_def"].Unpack(signatures)
        # TensorFlow Serving lists the initialization op as well.
        del maps[0].signature_def["__saved_model_init_op"]
        assert maps[0] == maps[1]
        assert local_models.GetModelStatus(states) == real_models.GetModelStatus(states)


def test_only_tensorflow_serving_classifies_and_reloads_by_grpc(servers: Servers, models: Path) -> None:
    classify = classification_pb2.ClassificationRequest(model_spec={"name": "old"})
    classify.input.example_list.examples.add().ParseFromString(example(0.25))
    reload = management.ReloadConfigRequest()
    text_format.Parse(f"config {{ {(models / 'models.config').read_text()} }}", reload)
    for server, expected in zip(servers, (CODES.OK, CODES.UNIMPLEMENTED), strict=True):
        with server.stubs() as (stub, model_stub):
            assert code(stub.Classify, classify) is expected
            assert code(model_stub.HandleReloadConfigRequest, reload) is expected


def test_rules_read_metrics_that_tensorflow_serving_has(servers: Servers) -> None:
    assert ask(servers.real, "/v1/models/line:predict", {"instances": [ROW]})[0] == 200
    status, text = servers.real.ask("GET", METRICS)
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert status == 200
    counts = families[":tensorflow:serving:request_count"].samples
    assert any(sample.labels["model_name"] == "line" and sample.labels["status"] == "OK" for sample in counts)
    buckets = families[":tensorflow:serving:request_latency"].samples
    assert any(sample.labels.get("model_name") == "line" and "le" in sample.labels for sample in buckets)


def test_full_queue_of_batches_is_unavailable_and_a_scalar_is_not_batched(models: Path, tmp_path: Path) -> None:
    """HAProxy sends a request with status 503 to another server."""
    batching = tmp_path / "batching.config"
    batching.write_text(
        "max_batch_size { value: 1 } batch_timeout_micros { value: 0 } "
        "max_enqueued_batches { value: 1 } num_batch_threads { value: 1 }"
    )
    options = (f"--model_config_file={models / 'models.config'}", f"--batching_parameters_file={batching}")
    options += ("--enable_batching=true", "--allow_version_labels_for_unavailable_models=true")
    slow = {"signature_name": "loop", "instances": [20_000]}
    with model_server(tmp_path, *options) as server, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: server.ask("POST", "/v1/models/line:predict", slow), range(8)))
        assert {status for status, _ in answers} == {200, 503}, answers
        assert server.ask("POST", "/v1/models/kinds:predict", {"signature_name": "scalar", "inputs": 1.5})[0] == 400


def test_label_does_not_move_to_a_version_that_is_not_loaded_yet(models: Path, tmp_path: Path) -> None:
    """For this reason `rollout.announce` writes a file that lists the version first."""

    def write(number: int, *versions: int) -> None:
        policy = " ".join(f"versions: {version}" for version in versions)
        labels = f'version_labels {{ key: "stable" value: {number} }}'
        fields = f"model_version_policy {{ specific {{ {policy} }} }} {labels}"
        (tmp_path / ".new").write_text(model_config(models, line=fields))
        (tmp_path / ".new").replace(tmp_path / "models.config")

    def ask_stable() -> Any:
        return server.ask("POST", "/v1/models/line/labels/stable:predict", {"instances": [ROW]})

    write(1, 1)
    options = (f"--model_config_file={tmp_path / 'models.config'}", "--model_config_file_poll_wait_seconds=1")
    with model_server(tmp_path, *options, "--allow_version_labels_for_unavailable_models=true") as server:
        write(2, 1, 2)
        server.until(lambda: server.log.read_text().count("Request to assign label to version 2 of model line") > 2)
        assert server.states("line") == {1: "AVAILABLE"}
        assert ask_stable() == (200, {"predictions": [3]})
        write(1, 1, 2)
        server.wait("line", 2)
        write(2, 1, 2)
        server.until(lambda: ask_stable() == (200, {"predictions": [4]}))


def test_server_does_not_start_with_a_version_that_it_cannot_load(models: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        shutil.copytree(models / "line" / str(number), tmp_path / "line" / str(number))
    next((tmp_path / "line" / "2" / "variables").glob("*.data-*")).write_bytes(b"")
    (tmp_path / "models.config").write_text(model_config(tmp_path, line="model_version_policy { all { } }"))
    options = (f"--model_config_file={tmp_path / 'models.config'}", "--max_num_load_retries=0")
    with pytest.raises(AssertionError, match="Failed to start server"), model_server(tmp_path / "server", *options):
        pass


def options_of(words: list[str], folder: Path) -> list[str]:
    """Return the options of a container, without ports, with the paths of this machine."""
    paths = {"/models/${MODEL:-taxi}/rollout": str(folder), "/models/taxi/rollout": str(folder)}
    paths["/etc/serving"] = str(DEPLOY / "serving")
    for there, here in paths.items():
        words = [word.replace(there, here) for word in words]
    return [word for word in words if not word.startswith(("--port=", "--rest_api_port="))]


def read_commands() -> dict[str, list[str]]:
    """Return the options of tensorflow_model_server in the files of deploy/."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    deployments = yaml.safe_load_all((DEPLOY / "kubernetes" / "deployments.yaml").read_text())
    return {
        "compose": compose["services"]["serving-1"]["command"],
        **{
            deployment["metadata"]["name"]: deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            for deployment in deployments
        },
    }


@pytest.mark.parametrize("words", read_commands().values(), ids=read_commands())
def test_options_of_the_containers_are_accepted(models: Path, tmp_path: Path, words: list[str]) -> None:
    rows = [example(float(x)) for x in np.random.default_rng(3).normal(size=200)]
    for name in ("models.config", "models-stable.config", "models-canary.config"):
        (tmp_path / name).write_text("model_config_list {\n}\n")
    options = [*options_of(words, tmp_path), "--model_config_file_poll_wait_seconds=1"]
    with model_server(tmp_path / "server", *options) as server:
        # An option with a misspelt name is printed, and the server starts.
        assert "unknown argument" not in server.log.read_text()
        # A server without a model takes the first one from the file. On Kubernetes the files do not have labels.
        labels = LABELS if any("allow_version_labels" in word for word in words) else ""
        for file in tmp_path.glob("*.config"):
            (tmp_path / ".new").write_text(model_config(models, line=f"model_version_policy {{ all {{ }} }} {labels}"))
            (tmp_path / ".new").replace(file)
        server.wait("line", 2)
        with ThreadPoolExecutor(16) as threads:
            bodies = ({"instances": [b64(row)]} for row in rows)
            answers = threads.map(lambda body: server.ask("POST", "/v1/models/line:predict", body), bodies)
            predictions = [answer["predictions"][0] for _, answer in answers]
        _, text = server.ask("GET", METRICS)
    loaded = tf.saved_model.load(str(models / "line" / "2"))
    expected = loaded.signatures["serving_default"](tf.constant(rows))["y"].numpy()
    np.testing.assert_allclose(predictions, expected, rtol=1e-6, atol=1e-6)
    samples = [sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples]
    name = ":tensorflow:serving:batching_session:processed_batch_size_sum"
    assert sum(sample.value for sample in samples if sample.name == name) >= len(rows)
