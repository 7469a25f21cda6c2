"""What the serving check runs: TFX's InfraValidator, with our server, the Evaluator's predictions, a latency budget."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)
from tfx import types
from tfx.components.infra_validator import error_types, executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import path_utils

from components.serving.config import ServingConfig
from components.serving.found import FILE, Found
from components.serving.runner import LocalServerRunner

EVALUATION, PLAN, PREDICTIONS = "evaluation", "plan", "predictions"

_LEAST_TIMED = 200
"""Requests whose latency is measured: of a few, the slowest alone would be the 99th percentile."""
_TICK_SECONDS = 0.1
_CALL_SECONDS = 60.0
_SHOWN = 5
"""Numbers of a differing answer that are told."""


class Executor(executor.Executor):  # type: ignore[misc]
    """Blesses a model that a model server answers with, as the Evaluator has seen it answer, and fast enough."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Checks the model.

        Args:
          input_dict: `model`, raw `examples`, and `evaluation` if there is one.
          output_dict: `blessing`; gets what TFX's InfraValidator gives it, and check.json.
          exec_properties: TFX's, `plan` (a ServingConfig as JSON), and `predictions` (the file in `evaluation`).
        """
        self._config = ServingConfig.model_validate_json(exec_properties[PLAN])
        self._found = Found(self._config.check if self._config.check == "server" else self._config.image)
        self._predicted = _predictions(input_dict.get(EVALUATION, []), exec_properties[PREDICTIONS])
        model = artifact_utils.get_single_instance(input_dict[standard_component_specs.MODEL_KEY])
        if not _takes_examples(path_utils.serving_model_path(model.uri)):
            logging.warning("serving_default takes no serialized tf.Examples: the model is loaded, and not asked")
            input_dict = {key: each for key, each in input_dict.items() if key != standard_component_specs.EXAMPLES_KEY}
        super().Do(input_dict, output_dict, exec_properties)
        blessing = artifact_utils.get_single_instance(output_dict[standard_component_specs.BLESSING_KEY])
        with fileio.open(f"{blessing.uri}/{FILE}", "w") as file:
            file.write(self._found.to_json())

    def _ValidateOnce(  # noqa: N802 - TFX's name
        self, model_path: str, serving_binary: Any, serving_spec: Any, validation_spec: Any, requests: list[Any]
    ) -> None:
        started = time.time()
        deadline = started + validation_spec.max_loading_time_seconds
        if self._config.check == "server":
            runner = LocalServerRunner(model_path, serving_spec.model_name)
        else:
            runner = executor._create_model_server_runner(model_path, serving_binary, serving_spec)
        endpoint = None
        try:
            runner.Start()
            runner.WaitUntilRunning(deadline)
            endpoint = runner.GetEndpoint()
            client = serving_binary.MakeClient(endpoint)
            client.WaitUntilModelLoaded(deadline, polling_interval_sec=_TICK_SECONDS)
            self._found.loaded_seconds = time.time() - started
            client.SendRequests(requests)
            self._ask(endpoint, serving_spec.model_name, requests)
            self._found.passed = True
        except error_types.GracefulShutdown:
            raise
        except Exception as error:
            self._found.why = _why(error, endpoint, serving_spec.model_name)
            logging.error("%s; the server has told: %s", self._found.why, runner.GetLogs())
            raise
        finally:
            runner.Stop()

    def _ask(self, endpoint: str, name: str, requests: Sequence[Any]) -> None:
        """Holds answers against predictions, and takes the time.

        Raises:
          ValidationFailed: an answer is another, or too slow.
        """
        with grpc.insecure_channel(endpoint) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for predicted in self._predicted:
                predicted.request.model_spec.name = name
                self._compare(predicted.response, stub.Predict(predicted.request, timeout=_CALL_SECONDS))
            rows = [each for each in requests if isinstance(each, predict_pb2.PredictRequest)]
            if not rows:
                return
            milliseconds = []
            for request in itertools.islice(itertools.cycle(rows), max(len(rows), _LEAST_TIMED)):
                before = time.perf_counter()
                stub.Predict(request, timeout=_CALL_SECONDS)
                milliseconds.append((time.perf_counter() - before) * 1e3)
        p99, budget = _percentile(milliseconds, 99), self._config.max_p99_ms
        self._found.timed, self._found.p50_ms, self._found.p99_ms = (
            len(milliseconds),
            _percentile(milliseconds, 50),
            p99,
        )
        if budget is not None and p99 > budget:
            raise error_types.ValidationFailed(
                f"expected 99 of 100 requests to take {budget:g} ms at most (serving.max_p99_ms), received {p99:g} ms"
            )

    def _compare(self, predicted: Any, answered: Any) -> None:
        """Holds an answer against the Evaluator's prediction for the same row.

        Raises:
          ValidationFailed: they differ.
        """
        for name, tensor in predicted.outputs.items():
            expected = tf.make_ndarray(tensor)
            received = tf.make_ndarray(answered.outputs[name]) if name in answered.outputs else None
            difference = _difference(expected, received)
            if difference < float("inf"):
                self._found.max_difference = max(self._found.max_difference or 0.0, difference)
            if difference > self._config.tolerance:
                told = "nothing" if received is None else received.ravel()[:_SHOWN].tolist()
                raise error_types.ValidationFailed(
                    f"{name}: expected the Evaluator's {expected.ravel()[:_SHOWN].tolist()} within "
                    f"{self._config.tolerance:g} (serving.tolerance), the server answers {told}"
                )
        self._found.compared += 1


def _predictions(evaluation: Sequence[types.Artifact], name: str) -> list[Any]:
    """What the Evaluator has recorded: requests for one row, and the model's answers, as PredictLogs."""
    files = [f"{artifact.uri}/{name}" for artifact in evaluation]
    found = [file for file in files if fileio.exists(file)]
    records = tf.data.TFRecordDataset(found).as_numpy_iterator() if found else ()
    return [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]


def _takes_examples(model: str) -> bool:
    """Whether TFX can build requests: it does so for a signature with one input, the serialized rows."""
    with fileio.open(f"{model}/saved_model.pb", "rb") as file:
        graphs = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    # Of a graph without that signature, a protobuf map gives an empty one.
    inputs = [graph.signature_def["serving_default"].inputs.values() for graph in graphs]
    rows = [(tf.string.as_datatype_enum, [-1])]
    return any(
        [(each.dtype, [dim.size for dim in each.tensor_shape.dim]) for each in given] == rows for given in inputs
    )


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 3)


def _difference(expected: Any, received: Any) -> float:
    """The largest difference, relative to values above one; infinite where there is nothing to subtract."""
    if received is None or received.shape != expected.shape or received.dtype != expected.dtype:
        return float("inf")
    if expected.dtype.kind not in "fiu":
        return 0.0 if bool(np.all(received == expected)) else float("inf")
    if not expected.size:
        return 0.0
    apart = np.abs(received.astype(float) - expected.astype(float)) / np.maximum(1.0, np.abs(expected.astype(float)))
    apart[np.isnan(expected) & np.isnan(received)] = 0.0
    return float("inf") if np.isnan(apart).any() else float(apart.max())


def _why(error: Exception, endpoint: str | None, model: str) -> str:
    """The reason in one line, from whoever knows it best."""
    cause = error.__cause__
    if isinstance(cause, grpc.RpcError):
        return f"the server refuses a row: {cause.details()}"
    if endpoint is not None and isinstance(error, error_types.ValidationFailed):
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = model
        try:
            with grpc.insecure_channel(endpoint) as channel:
                told = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=_CALL_SECONDS)
            messages = [each.status.error_message for each in told.model_version_status if each.status.error_message]
            if messages:
                return f"the server cannot load the model: {messages[0]}"
        except grpc.RpcError:
            logging.exception("the server does not tell how the model is")
    return str(error).partition("\n")[0]
