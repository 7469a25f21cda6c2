"""TensorFlow Serving's own server loads pushed models and their warm-up requests, and predicts what TensorFlow does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests.support.data import people
from tests.support.runs.command import Runs, first_run
from tests.support.servers.model_server import model_server, needs_model_server
from tests.support.servers.serving import Server, b64, serving
from tests.support.shared import make_once

pytestmark = [pytest.mark.slow, needs_model_server]

ATOL = 1e-6
"""The servers join and split rows differently, and float32 sums depend on that."""


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run people's rows with gradient boosted trees, on numbers and words."""

    def make(folder: Path) -> Runs:
        config = people.project(
            folder, "trees", model={"kind": "gbt", "trees": 20, "depth": 3}, serving={"check": "server"}
        )
        return first_run(folder, "trees", "--config", str(config))

    return make_once(tmp_path_factory, "trees", make)


@pytest.fixture(scope="session")
def quantiles(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Predict quantiles of people's spending, which are several outputs."""

    def make(folder: Path) -> Runs:
        config = people.project(
            folder,
            "quantiles",
            data={**people.CONFIG["data"], "label": "spent", "task": "regression"},
            model={"kind": "mlp", "hidden": [8], "loss": "quantile"},
            evaluation={"thresholds": {"interval_coverage": {"min": 0.01}}},
            serving={"check": "server"},
        )
        return first_run(folder, "quantiles", "--config", str(config))

    return make_once(tmp_path_factory, "quantiles", make)


@pytest.fixture(scope="module", params=["taxi", "clicks", "digits", "trees", "quantiles"])
def pushed(request: pytest.FixtureRequest) -> Path:
    """Return the version that a run has pushed: of numbers and words, of lists, of images, of trees, of quantiles."""
    runs: Runs = request.getfixturevalue(request.param)
    assert runs.first.exit_code == 0, runs.first.out or runs.first.err
    return Path(runs.first.result["pushed"])


@pytest.fixture(scope="module")
def servers(pushed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Yield TensorFlow Serving and the local server."""
    folder = tmp_path_factory.mktemp("servers")
    options = ("--model_name=m", f"--model_base_path={pushed.parent}")
    with model_server(folder, *options) as real, serving(folder, *options) as local:
        for server in (real, local):
            server.wait("m", int(pushed.name))
        yield real, local


def read_requests(pushed: Path) -> list[Any]:
    """Return the recorded warm-up requests of a version, for the model m."""
    file = pushed / "assets.extra" / "tf_serving_warmup_requests"
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    requests = [prediction_log_pb2.PredictionLog.FromString(record).predict_log.request for record in records]
    for request in requests:
        request.model_spec.name = "m"
        request.model_spec.ClearField("version_choice")
    return requests


def to_json(array: Any) -> Any:
    """Return the values of an input for the REST API."""
    return np.vectorize(b64, otypes=[object])(array).tolist() if array.dtype == object else array.tolist()


def assert_alike(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == object:
            np.testing.assert_array_equal(actual[name], value)
        else:
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=ATOL)


def test_every_warm_up_request_is_loaded_and_answered_as_by_tensorflow(
    pushed: Path, servers: tuple[Server, Server]
) -> None:
    requests, loaded = read_requests(pushed), tf.saved_model.load(str(pushed))
    assert {"serving_default", "raw"} <= {request.model_spec.signature_name for request in requests}
    log = servers[0].log.read_text()
    assert f"Number of warmup records read: {len(requests)}" in re.sub(r"\s+", " ", log), log
    for request in requests:
        name = request.model_spec.signature_name
        inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        tensors = {key: tf.constant(value) for key, value in inputs.items()}
        expected = {key: value.numpy() for key, value in loaded.signatures[name](**tensors).items()}
        for server in servers:
            with server.stubs() as (stub, _):
                outputs = stub.Predict(request).outputs
            assert_alike({key: tf.make_ndarray(value) for key, value in outputs.items()}, expected)
            body = {"signature_name": name, "inputs": {key: to_json(value) for key, value in inputs.items()}}
            status, answer = server.ask("POST", "/v1/models/m:predict", body)
            assert status == 200, answer
            columns = answer["outputs"] if len(expected) > 1 else {next(iter(expected)): answer["outputs"]}
            texts = {key: value for key, value in expected.items() if value.dtype == object}
            numbers = {key: value for key, value in expected.items() if value.dtype != object}
            assert_alike({key: np.array(columns[key]) for key in numbers}, numbers)
            assert {key: np.array(columns[key]).tolist() for key in texts} == {
                key: np.char.decode(value.astype(bytes)).tolist() for key, value in texts.items()
            }
