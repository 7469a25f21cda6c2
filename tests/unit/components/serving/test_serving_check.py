"""The serving check: a model is blessed if a model server answers as the Evaluator's model did, and in time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from serving import Server, example, line, serving
from tensorflow_serving.apis import prediction_log_pb2
from tfx.components.infra_validator import error_types
from tfx.dsl.components.base import base_executor
from tfx.types import Channel, artifact_utils
from tfx.types.standard_artifacts import Examples, InfraBlessing, Model, ModelEvaluation

from components.serving import executor
from components.serving.component import InfraValidator
from components.serving.config import ServingConfig
from components.serving.executor import Executor
from components.serving.found import FILE
from components.serving.runner import LocalServerRunner

pytestmark = pytest.mark.both_lines

XS = (0.0, 1.5, -3.0, 1e6)
PREDICTIONS = "predictions.tfrecord"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model, and raw examples."""
    folder = tmp_path_factory.mktemp("check")
    line(folder / "model", 1).rename(folder / "model/Format-Serving")
    split = folder / "examples/Split-eval"
    split.mkdir(parents=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(split / "data-00000-of-00001.gz"), options) as writer:
        for x in XS:
            writer.write(example(x))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server that has the model already."""
    shutil.copytree(folder / "model/Format-Serving", folder / "served/1")
    with serving(folder / "server", "--model_name=line", f"--model_base_path={folder / 'served'}") as server:
        server.wait("line", 1)
        yield server


@pytest.fixture
def running(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the check use the server that runs already: a start takes seconds."""

    class Running(LocalServerRunner):
        def Start(self) -> None:  # noqa: N802 - TFX's name
            pass

        def WaitUntilRunning(self, deadline: float) -> None:  # noqa: N802 - TFX's name
            pass

        def GetEndpoint(self) -> str:  # noqa: N802 - TFX's name
            return f"127.0.0.1:{server.rpc}"

    monkeypatch.setattr(executor, "LocalServerRunner", Running)


@pytest.fixture
def check(folder: Path, tmp_path: Path) -> Callable[..., tuple[InfraBlessing, dict[str, Any]]]:
    """Runs the check; returns the blessing and what was found."""

    def run(evaluation: Path | None = None, model: Path | None = None, **told: Any) -> Any:
        node = InfraValidator(
            ServingConfig(**told),
            "line",
            model=Channel(type=Model),
            examples=Channel(type=Examples),
            evaluation=Channel(type=ModelEvaluation),
            predictions=PREDICTIONS,
        )
        trained, examples, blessing = Model(), Examples(), InfraBlessing()
        trained.uri, examples.uri, blessing.uri = (
            str(model or folder / "model"),
            str(folder / "examples"),
            str(tmp_path),
        )
        examples.split_names = artifact_utils.encode_split_names(["eval"])
        inputs = {"model": [trained], "examples": [examples]}
        if evaluation is not None:
            evaluated = ModelEvaluation()
            evaluated.uri = str(evaluation)
            inputs["evaluation"] = [evaluated]
        context = base_executor.BaseExecutor.Context(tmp_dir=f"{tmp_path / 'scratch'}/", unique_id="1")
        Executor(context).Do(inputs, {"blessing": [blessing]}, dict(node.exec_properties))
        return blessing, json.loads((tmp_path / FILE).read_text())

    return run


def evaluation(folder: Path, slope: float = 2.0, name: str = "y") -> Path:
    """What an Evaluator would leave whose model had this slope."""
    folder.mkdir()
    with tf.io.TFRecordWriter(str(folder / PREDICTIONS)) as writer:
        for x in XS:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.inputs["examples"].CopyFrom(tf.make_tensor_proto([example(x)]))
            answer = np.array([slope * x + 1], np.float32)
            log.predict_log.response.outputs[name].CopyFrom(tf.make_tensor_proto(answer))
            writer.write(log.SerializeToString())
    return folder


@pytest.mark.slow
def test_a_good_model_is_blessed_and_gets_warm_up_requests(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wherever the run was started.
    monkeypatch.chdir(tmp_path)
    blessing, found = check(evaluation(tmp_path / "evaluation"))
    assert blessing.get_int_custom_property("blessed") == 1
    assert found["passed"]
    assert found["why"] is None
    assert found["compared"] == len(XS)
    assert found["max_difference"] < 1e-6
    assert found["timed"] == 200
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    warm_up = tmp_path / "stamped_model/assets.extra/tf_serving_warmup_requests"
    records = [*tf.data.TFRecordDataset(str(warm_up)).as_numpy_iterator()]
    rows = {
        prediction_log_pb2.PredictionLog.FromString(record).predict_log.request.inputs["examples"].string_val[0]
        for record in records
    }
    assert rows <= {example(x) for x in XS}
    assert len(records) == 64


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_refused_with_the_servers_reason(
    check: Any, folder: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken/Format-Serving"
    shutil.copytree(folder / "model/Format-Serving", broken)
    next(broken.glob("variables/*.data*")).write_bytes(b"")
    blessing, found = check(model=broken.parent)
    assert blessing.get_int_custom_property("blessed") == 0
    assert not found["passed"]
    assert "cannot load the model" in found["why"]


@pytest.mark.usefixtures("running")
def test_without_predictions_the_split_is_asked_for(check: Any) -> None:
    blessing, found = check(examples=3)
    assert blessing.get_int_custom_property("blessed") == 1
    assert found["compared"] == 0
    assert found["timed"] == 200


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("predicted", "told", "why"),
    [
        ({"slope": 2.5}, {}, "y: expected the Evaluator's"),
        ({"name": "score"}, {}, "the server answers nothing"),
        ({}, {"max_p99_ms": 1e-3}, "expected 99 of 100 requests to take 0.001 ms at most"),
    ],
)
def test_another_answer_and_a_slow_one_are_refused(
    check: Any, tmp_path: Path, predicted: dict[str, Any], told: dict[str, Any], why: str
) -> None:
    blessing, found = check(evaluation(tmp_path / "evaluation", **predicted), **told)
    assert blessing.get_int_custom_property("blessed") == 0
    assert not found["passed"]
    assert why in found["why"]
    assert not (tmp_path / "stamped_model").exists()


@pytest.mark.usefixtures("running")
def test_a_difference_within_the_tolerance_passes(check: Any, tmp_path: Path) -> None:
    blessing, found = check(evaluation(tmp_path / "evaluation", slope=2.0001), tolerance=1e-3)
    assert blessing.get_int_custom_property("blessed") == 1
    assert 0 < found["max_difference"] < 1e-3


def test_a_server_that_ends_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    runner = LocalServerRunner(str(tmp_path / "line/1"), "line")
    runner.Start()
    with pytest.raises(error_types.JobAborted, match="ended before it listened"):
        runner.WaitUntilRunning(deadline=float("inf"))
    runner.Stop()


@pytest.mark.parametrize(("kind", "platform"), [("docker", "local_docker"), ("kubernetes", "kubernetes")])
def test_tensorflow_servings_image_is_chosen_in_docker_and_kubernetes(kind: str, platform: str) -> None:
    node = InfraValidator(
        ServingConfig(check=kind, image="registry:5000/serving:2.19.1"),
        "line",
        model=Channel(type=Model),
        examples=Channel(type=Examples),
        evaluation=Channel(type=ModelEvaluation),
        predictions=PREDICTIONS,
    )
    spec = json.loads(node.exec_properties["serving_spec"])
    assert platform in spec
    assert spec["tensorflow_serving"] == {"image_name": "registry:5000/serving", "tags": ["2.19.1"]}
