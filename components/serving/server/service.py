"""Answers the requests of both APIs: limits how many are in progress, finds the version, runs it, counts, records."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis import model_management_pb2, prediction_log_pb2
from tensorflow_serving.apis.classification_pb2 import ClassificationResponse
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictResponse
from tensorflow_serving.apis.regression_pb2 import RegressionResponse

from components.serving.server.batching import Batcher, BatchLimits
from components.serving.server.errors import RequestError
from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import ModelManager, Version, check_configs
from components.serving.server.request_log import RequestLog
from components.serving.server.saved_model import Arrays, Signature, from_proto, to_proto

_POLL_SECONDS = 0.02
_UNKNOWN = 2
"""tensorflow.error.Code of a version that is not loaded."""


class Service:
    """The methods of TensorFlow Serving's PredictionService and ModelService, and what both APIs share.

    Args:
      manager: the models.
      metrics: counts requests.
      log: records requests; None for no log.
      batching: limits of batches; None to run each request alone.
      workers: threads that run models.
      max_in_flight: requests in progress; more are rejected.
      reload_root: folder within which `reload` accepts models; None to reject all.

    Attributes:
      stopping: whether clients should close their connections.
    """

    def __init__(
        self,
        manager: ModelManager,
        metrics: Metrics,
        log: RequestLog | None,
        batching: BatchLimits | None,
        workers: int,
        max_in_flight: int,
        reload_root: Path | None,
    ) -> None:
        self.manager, self.metrics, self.stopping = manager, metrics, False
        self._log, self._batching, self._max_in_flight, self._reload_root = log, batching, max_in_flight, reload_root
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="run")
        self._batchers: dict[tuple[Version, str], Batcher] = {}
        self._in_flight = 0

    @contextlib.contextmanager
    def admit(self, api: str) -> Iterator[None]:
        """Count a request as in progress, from before its body is read; raise RequestError if there are too many."""
        if self._in_flight >= self._max_in_flight:
            code = StatusCode.RESOURCE_EXHAUSTED
            self.metrics.request(None, "", api, code.name, 0.0)
            raise RequestError(f"expected at most {self._max_in_flight} requests in progress; try again", code)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def run(
        self, spec: ModelSpec, api: str, method: str, read_inputs: Callable[[Signature], Arrays]
    ) -> tuple[ModelSpec, dict[str, Any]]:
        """Run a signature.

        Args:
          spec: the model, and its version or label, and the signature.
          api: REST or GRPC.
          method: predict, classify or regress.
          read_inputs: reads the inputs for the signature.

        Returns:
          The model, version and signature that answered, and the outputs: name → array.

        Raises:
          RequestError: for every failure.
        """
        started, version, status = time.perf_counter(), None, StatusCode.OK
        try:
            version = self.manager.find(*requested_version(spec))
            with version as saved_model:
                signature = saved_model.signature(spec.signature_name)
                inputs = read_inputs(signature)
                signature.check(inputs)
                outputs = await self._call(version, signature, inputs)
            answered = _spec(version, signature.name)
            if self._log is not None and method == "predict":
                self._log.add(functools.partial(_prediction_log, answered, inputs, outputs))
            return answered, outputs
        except RequestError as error:
            status = error.code
            raise
        except asyncio.CancelledError:
            status = StatusCode.CANCELLED  # The client disconnected.
            raise
        except Exception as error:
            logging.exception("a request failed: %s", spec)
            status = StatusCode.INTERNAL
            raise RequestError(f"{type(error).__name__}: {error}", status) from error
        finally:
            self.metrics.request(version, method, api, status.name, time.perf_counter() - started)

    def _call(self, version: Version, signature: Signature, inputs: Arrays) -> Awaitable[dict[str, Any]]:
        if self._batching is None or not signature.batches:
            return asyncio.get_running_loop().run_in_executor(self._threads, signature.run, inputs)
        key = (version, signature.name)
        if key not in self._batchers:
            count = functools.partial(self.metrics.batch, version)
            self._batchers[key] = Batcher(signature, self._batching, self._threads, count)
        return self._batchers[key].run(inputs)

    async def predict(self, request: Any) -> Any:
        """Answer a PredictRequest."""

        def read(_signature: Signature) -> Arrays:
            return {name: from_proto(request.inputs[name]) for name in request.inputs}

        spec, outputs = await self.run(request.model_spec, "GRPC", "predict", read)
        names = request.output_filter or outputs
        if unknown := [name for name in names if name not in outputs]:
            raise RequestError(f"output_filter: expected outputs of {sorted(outputs)}, received {unknown[0]!r}")
        response = PredictResponse(model_spec=spec)
        for name in names:
            to_proto(outputs[name], response.outputs[name])
        return response

    async def classify(self, request: Any, api: str = "GRPC") -> Any:
        """Answer a ClassificationRequest."""
        spec, outputs, _ = await self._run_examples(request, api, "classify")
        shapes = [outputs[name].shape for name in ("scores", "classes") if name in outputs]
        if not shapes:
            raise RequestError(f"signature {spec.signature_name!r}: expected the output scores or classes")
        scores = outputs.get("scores", np.zeros(shapes[0])).tolist()
        labels = outputs.get("classes", np.full(shapes[0], b"")).tolist()
        response = ClassificationResponse(model_spec=spec)
        for row in zip(labels, scores, strict=True):
            classes = response.result.classifications.add().classes
            for label, score in zip(*row, strict=True):
                classes.add(label=label.decode(errors="replace"), score=score)
        return response

    async def regress(self, request: Any, api: str = "GRPC") -> Any:
        """Answer a RegressionRequest."""
        spec, outputs, rows = await self._run_examples(request, api, "regress")
        if "outputs" not in outputs or outputs["outputs"].size != rows:
            raise RequestError(f"signature {spec.signature_name!r}: expected outputs with a value per example")
        response = RegressionResponse(model_spec=spec)
        for value in outputs["outputs"].ravel().tolist():
            response.result.regressions.add(value=value)
        return response

    async def _run_examples(self, request: Any, api: str, method: str) -> tuple[ModelSpec, dict[str, Any], int]:
        examples = np.array(serialized_examples(request.input), object)

        def read(signature: Signature) -> Arrays:
            if signature.method != f"tensorflow/serving/{method}" or len(signature.inputs) != 1:
                raise RequestError(
                    f"signature {signature.name!r}: expected the method tensorflow/serving/{method} and one input, "
                    f"received {signature.method} and {len(signature.inputs)}; use predict"
                )
            return dict.fromkeys(signature.inputs, examples)

        spec, outputs = await self.run(request.model_spec, api, method, read)
        return spec, outputs, len(examples)

    async def metadata(self, request: Any) -> Any:
        """Answer a GetModelMetadataRequest."""
        if list(request.metadata_field) != ["signature_def"]:
            raise RequestError(f"metadata_field: expected signature_def, received {[*request.metadata_field]}")
        version, signatures = self.manager.find(*requested_version(request.model_spec)), SignatureDefMap()
        with version as saved_model:
            for name in saved_model.signatures:
                signatures.signature_def[name].CopyFrom(saved_model.meta_graph.signature_def[name])
        response = GetModelMetadataResponse(model_spec=_spec(version))
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def status(self, request: Any) -> Any:
        """Answer a GetModelStatusRequest."""
        response = GetModelStatusResponse()
        for version in self.manager.status(*requested_version(request.model_spec)):
            status = response.model_version_status.add(version=version.number, state=version.state).status
            if version.error:
                status.error_code, status.error_message = _UNKNOWN, version.error
        return response

    async def reload(self, request: Any) -> Any:
        """Answer a ReloadConfigRequest."""
        if self._reload_root is None:
            message = "HandleReloadConfigRequest is disabled; start the server with --reload_root=FOLDER"
            raise RequestError(message, StatusCode.PERMISSION_DENIED)
        await self.manager.replace_configs(check_configs(request.config, self._reload_root))
        return model_management_pb2.ReloadConfigResponse()

    def remove(self, version: Version) -> None:
        """Remove what belongs to a version that was unloaded."""
        self._batchers = {key: each for key, each in self._batchers.items() if key[0] is not version}
        self.metrics.remove(version)

    async def finish(self, timeout: float) -> None:
        """Wait until no request is in progress, at most for so many seconds."""
        self.stopping, end = True, time.monotonic() + timeout
        while self._in_flight and time.monotonic() < end:
            await asyncio.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Write the request log and end the threads."""
        if self._log is not None:
            self._log.close()
        self._threads.shutdown()


def serialized_examples(value: Any) -> list[bytes]:
    """Return the tf.Examples of an Input message, each with the context; raise RequestError if there are none."""
    rows = [row.SerializeToString() for row in value.example_list.examples]
    if value.WhichOneof("kind") == "example_list_with_context":
        context = value.example_list_with_context.context.SerializeToString()
        examples = (context + row.SerializeToString() for row in value.example_list_with_context.examples)
        # The parser merges both; of features with the same name, it takes the last one.
        rows = [tf.train.Example.FromString(each).SerializeToString() for each in examples]
    if not rows:
        raise RequestError("input: expected at least one example")
    return rows


def requested_version(spec: ModelSpec) -> tuple[str, int | None, str]:
    """Return the name of the model, the number of the version or None, and the label or ""."""
    return spec.name, spec.version.value if spec.HasField("version") else None, spec.version_label


def _spec(version: Version, signature: str = "") -> ModelSpec:
    spec = ModelSpec(name=version.model, signature_name=signature)
    spec.version.value = version.number
    return spec


def _prediction_log(spec: ModelSpec, inputs: Arrays, outputs: Arrays) -> Any:
    log = prediction_log_pb2.PredictionLog()
    request, response = log.predict_log.request, log.predict_log.response
    request.model_spec.CopyFrom(spec)
    response.model_spec.CopyFrom(spec)
    for arrays, protos in ((inputs, request.inputs), (outputs, response.outputs)):
        for name, value in arrays.items():
            to_proto(value, protos[name])
    return log
