"""Executor of the serving check: TFX's InfraValidator that also compares predictions and measures latency.

A check ends in one of two ways:

- With a verdict, a ServingCheckResult that is written to the blessing and cached. The model passes, or it is refused
  for one of these reasons: a running server cannot load it or cannot answer a row (see `_REFUSALS`), the latency is
  above the budget, or, if there is no sample, a response differs from the SavedModel's prediction in this process by
  more than the tolerance. Only these reasons raise `_RefusedError`.
- With a failure, a MachineError that fails the node and is never cached, so that the next run tries again. It is raised
  if a response differs from what the trained model predicted before its export (see `sample_check`), and if anything
  kept the check from finishing: the server could not be started, was killed, exited, reported an internal error, or did
  not listen, load or answer in time; a file was missing, a disk was full, or memory ran out. A crash that the model
  causes looks like a killed server, so it is a failure as well. A server that has exited is replaced once.
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

from components.base.child_process import WaitingProcess, is_single_threaded
from components.base.errors import MachineError, find, first_line, is_of_machine
from components.base.processes import LostProcessError, with_second_try
from components.compat.tfx.infra_validator import InfraValidatorExecutor, container_runner
from components.data import example_artifacts, skew_sample
from components.data.saved_model import OURS, load
from components.results.model_outputs import depends_on_rounding
from components.serving import sample_check, server_process
from components.serving.check_result import FILE, Measured, ServingCheckResult
from components.serving.config import ServingConfig
from components.serving.local_server_runner import LocalServerRunner
from components.serving.server import warm_up
from components.serving.server.row_check import read_row_checks
from components.serving.server.saved_model import read_specs, to_proto

PLAN = "plan"

_MIN_TIMED_REQUESTS = 100
"""Minimum number of requests whose latency is measured. With fewer, the 99th percentile would be the maximum."""
_POLL_SECONDS = 0.1
_CALL_SECONDS = 60.0
_VALUES_IN_MESSAGE = 5
_WARM_UP_BYTES = 1 << 20
"""Maximum bytes of the rows in the warm-up request of a signature. A server may refuse requests above 4 MiB."""

_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""Status codes that blame the request or the model. All other codes blame, or may blame, the server, the connection,
the machine or its files."""
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
"""Detects a missing file by the message, because TensorFlow Serving reports every load error with the same code."""


class _RefusedError(Exception):
    """The model does not pass, according to the response of a running server. Only this error leads to a refusal."""


class Executor(InfraValidatorExecutor):
    """Blesses a model if a model server loads it, its responses match the SavedModel, and they are fast enough."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Check the model.

        Args:
          input_dict: The `model`, and raw `examples` as TFRecord or Parquet files.
          output_dict: The `blessing`, which receives the files of TFX's InfraValidator and check.json.
          exec_properties: The properties of TFX's InfraValidator, and `plan`, a ServingConfig as JSON.

        Raises:
          MachineError: If the check could not finish, so that there is no verdict.
        """
        self._config = ServingConfig.model_validate_json(exec_properties[PLAN])
        # Fork before TensorFlow starts threads in this process. The child imports the server while this process
        # prepares the requests.
        can_fork = self._config.check == "server" and is_single_threaded()
        self._forked = WaitingProcess(server_process.__name__, fork=True) if can_fork else None
        model = artifact_utils.get_single_instance(input_dict[standard_component_specs.MODEL_KEY])
        self._sample = skew_sample.read_predictions(model.uri)
        self._further_requests: list[Any] = []
        if self._sample is None:
            logging.info(
                "user code exported the model without sample predictions: responses are not compared with the trained "
                "model"
            )
        examples = input_dict.get(standard_component_specs.EXAMPLES_KEY)
        if examples and example_artifacts.format_of(examples[0]) == "parquet":
            spec = exec_properties[standard_component_specs.REQUEST_SPEC_KEY]
            rows = _write_rows_to_send(examples[0], spec, f"{self._get_tmp_dir()}/examples")
            input_dict = {**input_dict, standard_component_specs.EXAMPLES_KEY: [rows]}
        if not _takes_examples(path_utils.serving_model_path(model.uri)):
            logging.warning(
                "serving_default does not accept serialized tf.Examples: the model is only loaded, not called"
            )
            input_dict = {
                key: artifacts for key, artifacts in input_dict.items() if key != standard_component_specs.EXAMPLES_KEY
            }
        super().Do(input_dict, output_dict, exec_properties)
        blessing = artifact_utils.get_single_instance(output_dict[standard_component_specs.BLESSING_KEY])
        with fileio.open(f"{blessing.uri}/{FILE}", "w") as file:
            file.write(self._result.to_json())

    def validate(self, model_path: str, serving_binary: Any, spec: Any, limits: Any, requests: list[Any]) -> bool:
        """Check the model once.

        Args:
          model_path: Folder of the SavedModel; see `InfraValidatorExecutor`.
          serving_binary: TFX's ServingBinary, which creates the client.
          spec: TFX's ServingSpec, with the model's name.
          limits: TFX's ValidationSpec, with the longest time to load the model.
          requests: Requests with one row each.

        Returns:
          Whether the model passed.

        Raises:
          MachineError: If the check could not finish.
          GracefulShutdown: If the node was asked to stop.
        """

        def attempt() -> ServingCheckResult:
            return self._check_once(model_path, serving_binary, spec, limits.max_loading_time_seconds, requests)

        self._result = with_second_try(attempt)
        return self._result.passed

    def further_warm_up_requests(self) -> list[Any]:
        """Return one request per signature other than serving_default; the server has answered them."""
        return self._further_requests

    def _check_once(
        self, model: str, serving_binary: Any, spec: Any, load_seconds: float, requests: Sequence[Any]
    ) -> ServingCheckResult:
        """Check the model with one server.

        Args:
          model: Folder of the SavedModel.
          serving_binary: TFX's ServingBinary, which creates the client.
          spec: TFX's ServingSpec, with the model's name.
          load_seconds: Longest time to start the server and load the model.
          requests: Requests with one row each.

        Raises:
          LostProcessError: If the server has exited.
          MachineError: If the check could not finish.
          GracefulShutdown: If the node was asked to stop.
        """
        server = self._config.check if self._config.check == "server" else self._config.image
        runner, measured = None, Measured()
        try:
            if self._config.check == "server":
                # The forked process serves once; a second try starts an interpreter.
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
            failure = _to_machine_error(error, runner)
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
        """Start a server and check its responses and latency against the `serving` section.

        Args:
          measured: Receives the measurements, as far as the check gets.
          model: Folder of the SavedModel.
          runner: TFX's runner of a server that has not been started.
          serving_binary: TFX's ServingBinary, which creates the client.
          name: Name of the model in requests.
          deadline: Time until which the model must be loaded, in seconds since the epoch.
          requests: Requests of the model's signatures, with one row each.

        Raises:
          _RefusedError: If the model does not pass.
          Exception: If the check cannot finish.
        """
        rows = [request for request in requests if isinstance(request, predict_pb2.PredictRequest)]
        started = time.time()
        runner.Start()
        with ThreadPoolExecutor(1) as pool:
            # Predict while the server starts. If the model does not load here, the server may still give the reason.
            # A sample makes this comparison with the SavedModel needless, and loading the model takes seconds.
            predictions = pool.submit(_predict, model, [] if self._sample else rows)
            runner.WaitUntilRunning(deadline)
            endpoint = runner.GetEndpoint()
            # A response of transform_features contains the pixels of images, so do not limit its size.
            with grpc.insecure_channel(endpoint, [("grpc.max_receive_message_length", -1)]) as channel:
                _wait_until_loaded(runner, model_service_pb2_grpc.ModelServiceStub(channel), name, deadline)
                measured["loaded_seconds"] = time.time() - started
                with _raise_refused_rows():
                    predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
                    if self._sample:
                        # First, because a response that differs from the trained model is a failure, not a verdict.
                        call = functools.partial(predict, timeout=_CALL_SECONDS)
                        largest = sample_check.compare(self._sample, name, call, self._config.tolerance)
                        measured["sampled"], measured["max_difference"] = len(self._sample.examples), largest
                    other_requests = [
                        request for request in requests if not isinstance(request, predict_pb2.PredictRequest)
                    ]
                    if other_requests:
                        serving_binary.MakeClient(endpoint).SendRequests(other_requests)
                    self._further_requests = _make_further_requests(model, rows)
                    for request in self._further_requests:
                        predict(request, timeout=_CALL_SECONDS)
                    self._compare_and_time(measured, predict, rows, predictions.result())

    def _compare_and_time(
        self, measured: Measured, predict: Any, requests: Sequence[Any], predicted: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send requests one after the other, measure their latency, and compare the first responses with predictions.

        Raises:
          _RefusedError: If a response differs, or the 99th percentile of the latency is above the budget.
        """
        if not requests:
            return
        milliseconds = []
        expected = iter(predicted)
        for request in itertools.islice(itertools.cycle(requests), max(len(requests), _MIN_TIMED_REQUESTS)):
            before = time.perf_counter()
            answer = predict(request, timeout=_CALL_SECONDS)
            milliseconds.append((time.perf_counter() - before) * 1e3)
            for outputs in itertools.islice(expected, 1):
                self._compare(measured, outputs, answer)
        p99, budget = _percentile(milliseconds, 99), self._config.max_p99_ms
        measured["timed"] = len(milliseconds)
        measured["p50_ms"], measured["p99_ms"] = _percentile(milliseconds, 50), p99
        if budget is not None and p99 > budget:
            raise _RefusedError(
                f"expected 99 of 100 requests to take {budget:g} ms at most (serving.max_p99_ms), received {p99:g} ms"
            )

    def _compare(self, measured: Measured, predicted: Mapping[str, npt.NDArray[Any]], answer: Any) -> None:
        """Compare the prediction for a row, as a mapping from output to value, with the server's PredictResponse.

        Raises:
          _RefusedError: If they differ by more than the tolerance.
        """
        for name, expected in predicted.items():
            received = tf.make_ndarray(answer.outputs[name]) if name in answer.outputs else None
            difference = sample_check.difference(expected, received)
            if difference < float("inf") and not depends_on_rounding(name):
                measured["max_difference"] = max(measured.get("max_difference", 0.0), difference)
            if difference == float("inf") or (difference > self._config.tolerance and not depends_on_rounding(name)):
                values = "nothing" if received is None else received.ravel()[:_VALUES_IN_MESSAGE].tolist()
                raise _RefusedError(
                    f"{name}: expected {expected.ravel()[:_VALUES_IN_MESSAGE].tolist()} within "
                    f"{self._config.tolerance:g} (serving.tolerance), received {values} from the server"
                )
        measured["compared"] = measured.get("compared", 0) + 1


def _wait_until_loaded(runner: Any, models: Any, name: str, deadline: float) -> None:
    """Wait until all versions of a model are loaded.

    This replaces the method of TFX's client, which keeps waiting for a server that has exited and does not report why a
    model cannot be loaded.

    Raises:
      _RefusedError: If the server refused to load the model.
      RuntimeError: If the server could not load the model for a reason outside the model.
      JobAborted: If the server has exited.
      DeadlineExceeded: If the model is not loaded in time.
    """
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    states = get_model_status_pb2.ModelVersionStatus
    while (seconds := deadline - time.time()) > 0:
        try:
            versions = models.GetModelStatus(request, timeout=min(seconds, _CALL_SECONDS)).model_version_status
        except grpc.RpcError:
            versions = ()
            # The server may not respond yet. This raises if it has exited.
            runner.WaitUntilRunning(deadline)
        for version in versions:
            if version.state == states.END:
                _raise_not_loaded(version.status)
        if versions and all(version.state == states.AVAILABLE for version in versions):
            return
        time.sleep(_POLL_SECONDS)
    raise error_types.DeadlineExceeded("the model is not loaded within serving.max_loading_seconds")


def _raise_not_loaded(status: Any) -> None:
    message = status.error_message or "the server does not give a reason"
    if status.error_code in _MACHINE_CODES or _MISSING_FILE.search(message) or is_of_machine(message):
        raise RuntimeError(f"the model could not be loaded: {message}")
    raise _RefusedError(f"the server cannot load the model: {message.splitlines()[0]}")


@contextmanager
def _raise_refused_rows() -> Iterator[None]:
    """Raise a _RefusedError if the server's status code says that the model cannot answer a row."""
    try:
        yield
    except (grpc.RpcError, error_types.ValidationFailed) as error:
        cause = _unwrap(error)
        if isinstance(cause, grpc.RpcError) and cause.code() in _REFUSALS:
            raise _RefusedError(f"the server refuses a row: {cause.details()}") from error
        raise


def _unwrap(error: Exception) -> BaseException:
    # TFX's client wraps every error of a request in a ValidationFailed.
    return (error.__cause__ or error) if isinstance(error, error_types.ValidationFailed) else error


def _to_machine_error(error: Exception, runner: Any) -> MachineError:
    """Return the error for a check that could not finish.

    Args:
      error: The error that kept the check from finishing.
      runner: Runner of the server; None if the server could not be created.
    """
    logs = (runner.GetLogs() if runner else None) or ""
    for machine_error in (find(error), find(RuntimeError(logs))):
        # A known error such as a full disk brings a more specific headline and remedy.
        if isinstance(machine_error, MachineError):
            return machine_error
    cause = _unwrap(error)
    lost = isinstance(cause, error_types.JobAborted)
    if isinstance(cause, grpc.RpcError):
        lost = cause.code() == grpc.StatusCode.UNAVAILABLE
        exit_reason = runner.describe_end() if lost and isinstance(runner, LocalServerRunner) else None
        reason = exit_reason or f"the server answers {cause.code().name}: {cause.details()}"
    else:
        reason = first_line(cause)
    last_line = next((line.strip() for line in reversed(logs.splitlines()) if line.strip()), "")
    return (LostProcessError if lost else MachineError)(
        f"the serving check could not finish: {reason}",
        "see its log, which has the server's output; then --resume the run",
        [f"last line of the server's output: {last_line}"] if last_line else [],
    )


def _predict(model: str, requests: Sequence[predict_pb2.PredictRequest]) -> list[dict[str, npt.NDArray[Any]]]:
    """Compute the outputs for each request with the SavedModel in this process; return output → value per request."""
    if not requests:
        return []
    signatures = load(model)
    return [
        signatures[request.model_spec.signature_name](
            **{name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        )
        for request in requests
    ]


def _make_further_requests(model: str, requests: Sequence[predict_pb2.PredictRequest]) -> list[Any]:
    """Return a request with the same rows for every other signature that takes tf.Examples or columns."""
    signatures = _read_graphs(model)[0].signature_def
    if OURS not in signatures:
        return []
    examples = [row for request in requests[: warm_up.MOST_ROWS] for row in request.inputs["examples"].string_val]
    sizes = itertools.accumulate(map(len, examples))
    examples = [row for row, size in zip(examples, sizes, strict=True) if size <= _WARM_UP_BYTES] or examples[:1]
    further = []
    checks = read_row_checks(Path(model), "")
    for name in sorted(signatures.keys() - {"serving_default"}):
        specs = read_specs(signatures[name].inputs)
        inputs = warm_up.convert_examples(name, specs, examples, checks.schema if checks else None)
        if inputs is not None:
            request = predict_pb2.PredictRequest(model_spec=requests[0].model_spec)
            request.model_spec.signature_name = name
            for key, values in inputs.items():
                to_proto(values, request.inputs[key])
            further.append(request)
    return further


def _read_graphs(model: str) -> Sequence[Any]:
    with fileio.open(f"{model}/saved_model.pb", "rb") as file:
        return saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs  # type: ignore[no-any-return]


def _write_rows_to_send(examples: types.Artifact, request_spec: str, folder: str) -> types.Artifact:
    """Write the first rows of the split as TFRecords, because TFX builds requests from TFRecords only."""
    spec = proto_utils.json_to_proto(request_spec, infra_validator_pb2.RequestSpec())
    split = spec.split_name or example_artifacts.splits_of(examples)[0]
    return example_artifacts.write_tfrecords(examples, folder, [split], spec.num_examples or 1)


def _takes_examples(model: str) -> bool:
    """Return whether TFX can build requests, which needs a signature whose only input is serialized tf.Examples."""
    # If a graph lacks the signature, the protobuf map returns an empty signature.
    signatures = (graph.signature_def["serving_default"] for graph in _read_graphs(model))
    return any(warm_up.takes_examples(read_specs(signature.inputs)) for signature in signatures)


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 3)
