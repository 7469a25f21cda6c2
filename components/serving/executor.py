"""Executor of the serving check: TFX's InfraValidator, extended by predictions to compare with and a latency budget.

A check ends in one of two ways:

- A verdict, a ServingCheckResult, which is written to the blessing and cached: the model passed, or a running server
  has refused it. It refuses a model that it cannot load, a row that it cannot answer (see `_REFUSALS`), an answer that
  differs from the prediction of the SavedModel in this process by more than the tolerance, and a latency above the
  budget. Only these raise `_RefusedError`.
- A failure, a MachineError, which fails the node and is never cached, so that the next run tries again: an answer that
  differs from what the trained model predicted before its export, see `sample_check`, and everything that kept the
  check from finishing. The server could not be started, was killed, ended, or reported an error of its
  own; a file was missing, a disk full, or memory ran out; the server did not listen, load or answer in time. A crash
  that a model causes cannot be distinguished from a killed server, so it is a failure as well. A server that has ended
  is replaced once.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tfx import types
from tfx.components.infra_validator import error_types
from tfx.dsl.io import fileio
from tfx.proto import infra_validator_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import path_utils, proto_utils

from components.base.errors import MachineError, find, first_line, is_of_machine
from components.base.forked_process import is_single_threaded
from components.base.processes import LostProcessError, with_second_try
from components.compat.tfx.infra_validator import InfraValidatorExecutor, container_runner
from components.data import example_artifacts, skew_sample
from components.data.saved_model import load
from components.results.retrieval_outputs import ORDERS
from components.serving import sample_check
from components.serving.check_result import FILE, Measured, ServingCheckResult
from components.serving.config import ServingConfig
from components.serving.forked_server import ForkedServer
from components.serving.local_server_runner import LocalServerRunner
from components.serving.server import warm_up
from components.serving.server.row_check import read_row_checks
from components.serving.server.saved_model import OURS, read_specs, to_proto

PLAN = "plan"

_MIN_TIMED_REQUESTS = 200
"""Requests whose latency is measured: with fewer, the 99th percentile would be the slowest one."""
_POLL_SECONDS = 0.1
_CALL_SECONDS = 60.0
_VALUES_IN_MESSAGE = 5
_WARM_UP_BYTES = 1 << 20
"""Bytes of the rows in the warm-up request of a signature: a server may refuse requests of more than 4 MiB."""

_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""What a server answers about the request or the model. All other codes are about the server, the connection, the
machine or its files, or may be."""
_MACHINE_CODES = {
    code.value[0]
    for code in (
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
    )
}
_MISSING_FILE = re.compile(r"NotFoundError|FileNotFoundError|file does not exist")
"""In the message of a server whose codes are all the same."""


class _RefusedError(Exception):
    """A running server has answered, and the model does not pass: the only way to a verdict that it does not."""


class Executor(InfraValidatorExecutor):
    """Blesses a model that a model server loads, that answers as the SavedModel predicts here, and fast enough."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Check the model.

        Args:
          input_dict: `model`, and raw `examples` in either format.
          output_dict: `blessing`, which receives what TFX's InfraValidator writes, and check.json.
          exec_properties: TFX's, and `plan`, a ServingConfig as JSON.

        Raises:
          MachineError: The check could not finish; there is no verdict.
        """
        self._config = ServingConfig.model_validate_json(exec_properties[PLAN])
        # Before TensorFlow starts threads here. It imports the server while this process prepares the requests.
        self._forked = ForkedServer() if self._config.check == "server" and is_single_threaded() else None
        model = artifact_utils.get_single_instance(input_dict[standard_component_specs.MODEL_KEY])
        self._sample = skew_sample.read_predictions(model.uri)
        self._further_requests: list[Any] = []
        if self._sample is None:
            logging.info(
                "no predictions beside the model, which is code of the user: answers are not compared with them"
            )
        given = input_dict.get(standard_component_specs.EXAMPLES_KEY)
        if given and example_artifacts.format_of(given[0]) == "parquet":
            spec = exec_properties[standard_component_specs.REQUEST_SPEC_KEY]
            rows = _rows_to_send(given[0], spec, f"{self._get_tmp_dir()}/examples")
            input_dict = {**input_dict, standard_component_specs.EXAMPLES_KEY: [rows]}
        if not _takes_examples(path_utils.serving_model_path(model.uri)):
            logging.warning("serving_default takes no serialized tf.Examples: the model is loaded, but not called")
            input_dict = {key: each for key, each in input_dict.items() if key != standard_component_specs.EXAMPLES_KEY}
        super().Do(input_dict, output_dict, exec_properties)
        blessing = artifact_utils.get_single_instance(output_dict[standard_component_specs.BLESSING_KEY])
        with fileio.open(f"{blessing.uri}/{FILE}", "w") as file:
            file.write(self._result.to_json())

    def validate(self, model_path: str, serving_binary: Any, spec: Any, limits: Any, requests: list[Any]) -> bool:
        """Check the model once.

        Args:
          model_path: See `InfraValidatorExecutor`, as the next four.
          serving_binary: Has the client.
          spec: Has the model's name.
          limits: Has the time to load the model.
          requests: One row each.

        Returns:
          Whether the model passed.

        Raises:
          MachineError: The check could not finish.
          GracefulShutdown: The node was asked to stop.
        """

        def attempt() -> ServingCheckResult:
            return self._verdict(model_path, serving_binary, spec, limits.max_loading_time_seconds, requests)

        self._result = with_second_try(attempt)
        return self._result.passed

    def further_warm_up_requests(self) -> list[Any]:
        """Return a request for each signature besides serving_default that the server has answered."""
        return self._further_requests

    def _verdict(
        self, model: str, serving_binary: Any, spec: Any, load_seconds: float, requests: Sequence[Any]
    ) -> ServingCheckResult:
        """Check the model with one server.

        Args:
          model: See `validate`, as the next two.
          serving_binary: Has the client.
          spec: Has the model's name.
          load_seconds: The longest time to load the model.
          requests: One row each.

        Raises:
          LostProcessError: The server has ended.
          MachineError: The check could not finish.
          GracefulShutdown: The node was asked to stop.
        """
        server = self._config.check if self._config.check == "server" else self._config.image
        runner, measured = None, Measured()
        try:
            if self._config.check == "server":
                # A second try starts an interpreter.
                forked, self._forked = self._forked, None
                runner = LocalServerRunner(model, spec.model_name, forked)
            else:
                runner = container_runner(model, serving_binary, spec)
            self._measure(
                measured, model, runner, serving_binary, spec.model_name, time.time() + load_seconds, requests
            )
            return ServingCheckResult(server, passed=True, **measured)
        except _RefusedError as refusal:
            logging.error("%s; output of the model server: %s", refusal, runner.GetLogs() if runner else None)
            return ServingCheckResult(server, passed=False, why=str(refusal), **measured)
        except error_types.GracefulShutdown:
            raise
        except Exception as error:
            failure = _failure(error, runner)
            logging.error("%s; output of the model server: %s", failure.headline, runner.GetLogs() if runner else None)
            raise failure from error
        finally:
            if runner is not None:
                runner.Stop()

    def _measure(
        self,
        measured: Measured,
        model: str,
        runner: Any,
        serving_binary: Any,
        name: str,
        deadline: float,
        requests: Sequence[Any],
    ) -> None:
        """Start a server, and hold it against the section of the config.

        Args:
          measured: Gets what is measured.
          model: The folder of the SavedModel.
          runner: TFX's, of a server that has not been started.
          serving_binary: TFX's, which has the client.
          name: The model's name in requests.
          deadline: When the model has to be loaded, in seconds since the epoch.
          requests: Of the signatures of the model, one row each.

        Raises:
          _RefusedError: The model does not pass.
          Exception: The check cannot finish.
        """
        rows = [each for each in requests if isinstance(each, predict_pb2.PredictRequest)]
        started = time.time()
        runner.Start()
        with ThreadPoolExecutor(1) as pool:
            # While the server starts. The server may refuse a model that does not load here either.
            predictions = pool.submit(_predictions, model, rows)
            runner.WaitUntilRunning(deadline)
            endpoint = runner.GetEndpoint()
            # transform_features returns the pixels of images.
            with grpc.insecure_channel(endpoint, [("grpc.max_receive_message_length", -1)]) as channel:
                _wait_until_loaded(runner, model_service_pb2_grpc.ModelServiceStub(channel), name, deadline)
                measured["loaded_seconds"] = time.time() - started
                with _refused_rows():
                    predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
                    if self._sample:
                        # First, since an answer that differs from the trained model's is not a verdict on the model.
                        ask = functools.partial(predict, timeout=_CALL_SECONDS)
                        measured["sampled"] = sample_check.compare(self._sample, name, ask, self._config.tolerance)
                    serving_binary.MakeClient(endpoint).SendRequests(requests)
                    for request, expected in zip(rows, predictions.result(), strict=True):
                        self._compare(measured, expected, predict(request, timeout=_CALL_SECONDS))
                    self._further_requests = _further_requests(model, rows)
                    for request in self._further_requests:
                        predict(request, timeout=_CALL_SECONDS)
                    self._measure_latency(measured, predict, rows)

    def _measure_latency(self, measured: Measured, predict: Any, requests: Sequence[Any]) -> None:
        """Send requests one after the other.

        Raises:
          _RefusedError: The 99th percentile of the latency is above the budget.
        """
        if not requests:
            return
        milliseconds = []
        for request in itertools.islice(itertools.cycle(requests), max(len(requests), _MIN_TIMED_REQUESTS)):
            before = time.perf_counter()
            predict(request, timeout=_CALL_SECONDS)
            milliseconds.append((time.perf_counter() - before) * 1e3)
        p99, budget = _percentile(milliseconds, 99), self._config.max_p99_ms
        measured["timed"] = len(milliseconds)
        measured["p50_ms"], measured["p99_ms"] = _percentile(milliseconds, 50), p99
        if budget is not None and p99 > budget:
            raise _RefusedError(
                f"expected 99 of 100 requests to take {budget:g} ms at most (serving.max_p99_ms), received {p99:g} ms"
            )

    def _compare(self, measured: Measured, predicted: Mapping[str, npt.NDArray[Any]], answer: Any) -> None:
        """Compare the prediction for a row, output → value, with the server's PredictResponse.

        Raises:
          _RefusedError: They differ by more than the tolerance.
        """
        for name, expected in predicted.items():
            received = tf.make_ndarray(answer.outputs[name]) if name in answer.outputs else None
            difference = sample_check.difference(expected, received)
            if difference < float("inf") and name not in ORDERS:
                measured["max_difference"] = max(measured.get("max_difference", 0.0), difference)
            if difference == float("inf") or (difference > self._config.tolerance and name not in ORDERS):
                values = "nothing" if received is None else received.ravel()[:_VALUES_IN_MESSAGE].tolist()
                raise _RefusedError(
                    f"{name}: expected {expected.ravel()[:_VALUES_IN_MESSAGE].tolist()} within "
                    f"{self._config.tolerance:g} (serving.tolerance), the server answers {values}"
                )
        measured["compared"] = measured.get("compared", 0) + 1


def _wait_until_loaded(runner: Any, models: Any, name: str, deadline: float) -> None:
    """Wait until all versions of a model are loaded.

    TFX's client waits until the deadline for a server that has ended, and does not report why a model cannot be loaded.

    Raises:
      _RefusedError: The server has refused to load the model.
      RuntimeError: The server could not load the model for a reason that is not the model's.
      JobAborted: The server has ended.
      DeadlineExceeded: The model is not loaded in time.
    """
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    states = get_model_status_pb2.ModelVersionStatus
    while (seconds := deadline - time.time()) > 0:
        try:
            versions = models.GetModelStatus(request, timeout=min(seconds, _CALL_SECONDS)).model_version_status
        except grpc.RpcError:
            versions = ()
            # Raises if the server has ended, rather than not begun to answer.
            runner.WaitUntilRunning(deadline)
        for version in versions:
            if version.state == states.END:
                _raise_not_loaded(version.status)
        if versions and all(version.state == states.AVAILABLE for version in versions):
            return
        time.sleep(_POLL_SECONDS)
    raise error_types.DeadlineExceeded("the model is not loaded within serving.max_loading_seconds")


def _raise_not_loaded(status: Any) -> None:
    message = status.error_message or "no reason is given"
    if status.error_code in _MACHINE_CODES or _MISSING_FILE.search(message) or is_of_machine(message):
        raise RuntimeError(f"the model could not be loaded: {message}")
    raise _RefusedError(f"the server cannot load the model: {message.splitlines()[0]}")


@contextmanager
def _refused_rows() -> Iterator[None]:
    """Raise a _RefusedError for an answer that says that the model cannot answer a row."""
    try:
        yield
    except (grpc.RpcError, error_types.ValidationFailed) as error:
        cause = _cause(error)
        if isinstance(cause, grpc.RpcError) and cause.code() in _REFUSALS:
            raise _RefusedError(f"the server refuses a row: {cause.details()}") from error
        raise


def _cause(error: Exception) -> BaseException:
    # TFX's client raises a ValidationFailed from whatever goes wrong with a request.
    return (error.__cause__ or error) if isinstance(error, error_types.ValidationFailed) else error


def _failure(error: Exception, runner: Any) -> MachineError:
    """Return the error for a check that could not finish.

    Args:
      error: What kept it from finishing.
      runner: Of the server; None if there is none.
    """
    logs = (runner.GetLogs() if runner else None) or ""
    for machine_error in (find(error), find(RuntimeError(logs))):
        # A full disk has a headline and a remedy of its own.
        if isinstance(machine_error, MachineError):
            return machine_error
    cause = _cause(error)
    lost = isinstance(cause, error_types.JobAborted)
    if isinstance(cause, grpc.RpcError):
        lost = cause.code() == grpc.StatusCode.UNAVAILABLE
        ended = runner.ended() if lost and isinstance(runner, LocalServerRunner) else None
        reason = ended or f"the server answers {cause.code().name}: {cause.details()}"
    else:
        reason = first_line(cause)
    last_line = next((line.strip() for line in reversed(logs.splitlines()) if line.strip()), "")
    return (LostProcessError if lost else MachineError)(
        f"the serving check could not finish: {reason}",
        "see its log, which has the server's output; then --resume the run",
        [f"last line of the server's output: {last_line}"] if last_line else [],
    )


def _predictions(model: str, requests: Sequence[predict_pb2.PredictRequest]) -> list[dict[str, npt.NDArray[Any]]]:
    """Return output → value for each request, as TensorFlow computes it from the SavedModel in this process."""
    if not requests:
        return []
    signatures = load(model)
    return [
        signatures[request.model_spec.signature_name](
            **{name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        )
        for request in requests
    ]


def _further_requests(model: str, requests: Sequence[predict_pb2.PredictRequest]) -> list[Any]:
    """Return a request with rows of these requests for each other signature that takes tf.Examples or columns."""
    signatures = _graphs(model)[0].signature_def
    if OURS not in signatures:
        return []
    examples = [row for request in requests[: warm_up.MOST_ROWS] for row in request.inputs["examples"].string_val]
    sizes = itertools.accumulate(map(len, examples))
    examples = [row for row, size in zip(examples, sizes, strict=True) if size <= _WARM_UP_BYTES] or examples[:1]
    further = []
    checks = read_row_checks(Path(model), "")
    for name in sorted(signatures.keys() - {"serving_default"}):
        specs = read_specs(signatures[name].inputs)
        inputs = warm_up.rows_of_examples(name, specs, examples, checks.schema if checks else None)
        if inputs is not None:
            request = predict_pb2.PredictRequest(model_spec=requests[0].model_spec)
            request.model_spec.signature_name = name
            for key, values in inputs.items():
                to_proto(values, request.inputs[key])
            further.append(request)
    return further


def _graphs(model: str) -> Sequence[Any]:
    with fileio.open(f"{model}/saved_model.pb", "rb") as file:
        return saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs  # type: ignore[no-any-return]


def _rows_to_send(examples: types.Artifact, request_spec: str, folder: str) -> types.Artifact:
    """Return the first rows of the split to read as TFRecords, which is all that TFX builds requests from."""
    spec = proto_utils.json_to_proto(request_spec, infra_validator_pb2.RequestSpec())
    split = spec.split_name or example_artifacts.splits_of(examples)[0]
    return example_artifacts.write_tfrecords(examples, folder, [split], spec.num_examples or 1)


def _takes_examples(model: str) -> bool:
    """Whether TFX can build requests: it does so for a signature with one input, the serialized tf.Examples."""
    # For a graph without that signature, a protobuf map returns an empty one.
    signatures = (graph.signature_def["serving_default"] for graph in _graphs(model))
    return any(warm_up.takes_examples(read_specs(signature.inputs)) for signature in signatures)


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 3)
