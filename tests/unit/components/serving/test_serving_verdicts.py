"""Tests of the parts of the serving check that do not need a model server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2, predict_pb2
from tfx.components.infra_validator import error_types
from tfx.types import Channel
from tfx.types.standard_artifacts import Examples, Model

from components.base import child_process
from components.serving import executor
from components.serving.component import InfraValidator
from components.serving.config import ServingConfig
from components.serving.executor import Executor
from components.serving.local_server_runner import LocalServerRunner

pytestmark = pytest.mark.both_lines


def test_order_of_items_is_not_compared() -> None:
    checking: Any = SimpleNamespace(_config=ServingConfig())
    answer = predict_pb2.PredictResponse()
    for name, value in (("score", [0.5]), ("rank", [3])):
        answer.outputs[name].CopyFrom(tf.make_tensor_proto([value]))
    predicted = {"score": np.array([[0.5]], np.float32), "rank": np.array([[2]], np.int32)}
    Executor._compare(checking, {}, predicted, answer)
    for wrong in ({"score": predicted["score"] + 1}, {"rank": predicted["rank"][:, 0]}):
        with pytest.raises(executor._RefusedError):
            Executor._compare(checking, {}, {**predicted, **wrong}, answer)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (grpc.StatusCode.UNKNOWN, "DataLossError: a checkpoint is damaged", executor._RefusedError),
        (grpc.StatusCode.NOT_FOUND, "no SavedModel", RuntimeError),
        (grpc.StatusCode.UNKNOWN, "NotFoundError: no variables", RuntimeError),
        (grpc.StatusCode.UNKNOWN, "OSError: [Errno 28] No space left on device", RuntimeError),
        (grpc.StatusCode.UNKNOWN, "ResourceExhaustedError: OOM when allocating tensor", RuntimeError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "out of memory", RuntimeError),
    ],
)
def test_model_is_only_rejected_for_a_load_error_of_the_model_itself(
    code: grpc.StatusCode, message: str, expected: type[Exception]
) -> None:
    status = get_model_status_pb2.ModelVersionStatus().status
    status.error_code, status.error_message = code.value[0], message
    with pytest.raises(expected, match=message.partition(":")[0]):
        executor._raise_not_loaded(status)


def test_server_that_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_PYTHON", shutil.which("false"))
    runner = LocalServerRunner(str(tmp_path / "line/1"), "line")
    runner.Start()
    with pytest.raises(error_types.JobAborted, match="the server ended with exit code 1 before it listened"):
        runner.WaitUntilRunning(deadline=float("inf"))
    runner.Stop()


@pytest.mark.parametrize(("kind", "platform"), [("docker", "local_docker"), ("kubernetes", "kubernetes")])
def test_image_of_tensorflow_serving_is_used_in_docker_and_kubernetes(kind: str, platform: str) -> None:
    node = InfraValidator(
        ServingConfig(check=kind, image="registry:5000/serving:2.19.1"),
        "line",
        model=Channel(type=Model),
        examples=Channel(type=Examples),
    )
    spec = json.loads(node.exec_properties["serving_spec"])
    assert platform in spec
    assert spec["tensorflow_serving"] == {"image_name": "registry:5000/serving", "tags": ["2.19.1"]}
