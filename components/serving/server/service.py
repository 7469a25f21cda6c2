"""Answer the requests of both APIs: limit concurrency, find the version, run it, count and record the request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from grpc import StatusCode
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceServicer
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceServicer

from components.data.private_columns import PrivateColumns
from components.data.saved_model import RAW
from components.serving.server.batching import Batcher, BatchLimits
from components.serving.server.errors import RequestError
from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import POLL_SECONDS, ModelManager, Version
from components.serving.server.request_log import RequestLog
from components.serving.server.saved_model import Arrays, Signature, from_proto, to_proto

# asyncio.wait_for of Python 3.10 would create a task even for a message that has already arrived.
if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

_T = TypeVar("_T")


@dataclass(eq=False)
class Service(PredictionServiceServicer, ModelServiceServicer):  # type: ignore[misc]
    """Implements TensorFlow Serving's PredictionService and ModelService, and the functions that both APIs share.

    The methods that the protos name take gRPC's context, or None for a request of the REST API.

    Attributes:
      manager: Manager of the loaded versions.
      metrics: Metrics that count the requests.
      log: Log that records requests. If None, requests are not recorded.
      batching: Limits of batches. If None, every request runs alone.
      workers: Number of threads that run models.
      max_in_flight: Maximum number of requests in progress. Further requests are rejected.
      read_seconds: Longest time that a client may take to send a request, in seconds.
      key: Input of the signature `raw`, or feature of tf.Examples, that identifies a row. It is recorded but not passed
        to the model. "" for none.
      private: Columns whose values are hashed or dropped in the log. If None, requests are logged as they are.
      stopping: Whether the server is stopping, so that clients should close their connections.
    """

    manager: ModelManager
    metrics: Metrics
    log: RequestLog | None
    batching: BatchLimits | None
    workers: int
    max_in_flight: int
    read_seconds: float
    key: str = ""
    private: PrivateColumns | None = None
    stopping: bool = False
    _in_flight: int = 0

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="run")
        self._batchers: dict[tuple[Version, str], Batcher] = {}

    @contextlib.contextmanager
    def admit(self, api: str) -> Iterator[None]:
        """Count a request as in progress until the block ends. Enter the block before the body is read.

        Raises:
          RequestError: If too many requests are in progress.
        """
        if self._in_flight >= self.max_in_flight:
            with self.count_rejections(api):
                text = f"expected at most {self.max_in_flight} requests in progress; try again"
                raise RequestError(text, StatusCode.RESOURCE_EXHAUSTED)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    @contextlib.contextmanager
    def count_rejections(self, api: str) -> Iterator[None]:
        """Count a request that is rejected before its model is looked up."""
        try:
            yield
        except RequestError as error:
            self.metrics.request(None, api, error.code.name, 0.0)
            raise

    async def read(self, message: Awaitable[_T]) -> _T:
        """Wait for the message of a client; raise RequestError if that takes longer than `read_seconds`."""
        try:
            async with timeout(self.read_seconds):
                return await message
        except asyncio.TimeoutError:
            text = f"expected the whole message within {self.read_seconds:g} s"
            raise RequestError(text, StatusCode.DEADLINE_EXCEEDED) from None

    async def run(
        self, spec: ModelSpec, api: str, read_inputs: Callable[[Signature], Arrays], columns: Collection[str] = ()
    ) -> tuple[Version, Signature, dict[str, Any]]:
        """Run a signature.

        Args:
          spec: Names of the model and the signature, and the version's number or label.
          api: REST or GRPC.
          read_inputs: Function that reads the inputs for a signature.
          columns: Names of the inputs, by which the signature is chosen if `spec` does not name one.

        Returns:
          The version and signature that answered, and the outputs, name → array.

        Raises:
          RequestError: If the request is not valid, or the requested version is not loaded.
        """
        # This status remains if the client disconnects, because the task is then cancelled.
        started, version, status = time.perf_counter(), None, StatusCode.CANCELLED
        signature_name = ""
        try:
            version = self.manager.find(*_parse_spec(spec))
            with version as saved_model:
                signature = saved_model.signature(spec.signature_name, columns)
                signature_name = signature.name
                inputs = read_inputs(signature)
                recorded, inputs = inputs, self._without_key(signature, inputs)
                signature.check(inputs)
                outputs = await self._call(version, saved_model.threads or self._threads, signature, inputs)
            if self.log is not None:
                answered = _spec(version, signature.name)
                self.log.add(functools.partial(_prediction_log, answered, recorded, outputs, self.private))
            status = StatusCode.OK
            return version, signature, outputs
        except Exception as error:
            status = error.code if isinstance(error, RequestError) else StatusCode.INTERNAL
            raise
        finally:
            self.metrics.request(version, api, status.name, time.perf_counter() - started, signature_name)

    def _without_key(self, signature: Signature, inputs: Arrays) -> Arrays:
        """Return the inputs without the key; raise RequestError unless the key has one value per row."""
        # If the signature takes tf.Examples, the key is a feature and RowCheck ignores it.
        if not self.key or signature.name != RAW or self.key in signature.inputs or self.key not in inputs:
            return inputs
        model_inputs = {name: value for name, value in inputs.items() if name != self.key}
        key = inputs[self.key]
        if key.dtype not in (object, np.int64) or any(value.shape[:1] != key.shape for value in model_inputs.values()):
            expected = "an integer or a string for each row"
            raise signature.error(f"expected the key {self.key!r} to have {expected}, received {list(key.shape)}")
        return model_inputs

    def _call(
        self, version: Version, threads: Executor, signature: Signature, inputs: Arrays
    ) -> Awaitable[dict[str, Any]]:
        if self.batching is None or not signature.batches:
            if signature.batches:
                self.metrics.batch(version, signature.name, len(next(iter(inputs.values()))))
            return asyncio.get_running_loop().run_in_executor(threads, signature.run, inputs)
        key = (version, signature.name)
        if key not in self._batchers:
            count = functools.partial(self.metrics.batch, version, signature.name)
            self._batchers[key] = Batcher(signature, self.batching, threads, count)
        return self._batchers[key].run(inputs)

    async def Predict(self, request: Any, _context: Any = None) -> Any:  # noqa: N802 - gRPC's name
        """Answer a PredictRequest."""

        def read(signature: Signature) -> Arrays:
            if unknown := [name for name in request.output_filter if name not in signature.outputs]:
                raise RequestError(
                    f"output_filter: expected outputs of {sorted(signature.outputs)}, received {unknown[0]!r}"
                )
            return {name: from_proto(proto) for name, proto in request.inputs.items()}

        version, signature, outputs = await self.run(request.model_spec, "GRPC", read)
        response = PredictResponse(model_spec=_spec(version, signature.name))
        for name in request.output_filter or outputs:
            to_proto(outputs[name], response.outputs[name], typed=True)
        return response

    async def GetModelMetadata(self, request: Any, _context: Any = None) -> Any:  # noqa: N802 - gRPC's name
        """Answer a GetModelMetadataRequest."""
        if list(request.metadata_field) != ["signature_def"]:
            raise RequestError(f"metadata_field: expected signature_def, received {[*request.metadata_field]}")
        version, signatures = self.manager.find(*_parse_spec(request.model_spec)), SignatureDefMap()
        with version as saved_model:
            for name in saved_model.signatures:
                signatures.signature_def[name].CopyFrom(saved_model.meta_graph.signature_def[name])
        response = GetModelMetadataResponse(model_spec=_spec(version))
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def GetModelStatus(self, request: Any, _context: Any = None) -> Any:  # noqa: N802 - gRPC's name
        """Answer a GetModelStatusRequest."""
        response = GetModelStatusResponse()
        # TensorFlow Serving ignores the label.
        name, number, _label = _parse_spec(request.model_spec)
        for version in self.manager.status(name, number):
            status = (
                {"error_code": StatusCode.UNKNOWN.value[0], "error_message": version.error} if version.error else {}
            )
            response.model_version_status.add(version=version.number, state=version.state, status=status)
        return response

    def read_metrics(self) -> bytes:
        """Return the metrics in the text format of Prometheus, with the current lengths of the queues."""
        return self.metrics.text(self._in_flight, {key: batcher.waiting for key, batcher in self._batchers.items()})

    def remove(self, version: Version) -> None:
        """Remove the batchers and metrics of a version that was unloaded."""
        self.remove_batchers(version)
        self.metrics.remove(version)

    def remove_batchers(self, version: Version) -> None:
        """Remove the batchers of a version that has failed. Its metrics remain, because it is loaded again."""
        self._batchers = {key: batcher for key, batcher in self._batchers.items() if key[0] is not version}

    async def finish(self, timeout: float) -> None:
        """Wait until no request is in progress, but at most `timeout` seconds."""
        self.stopping, end = True, time.monotonic() + timeout
        while self._in_flight and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)


def _parse_spec(spec: ModelSpec) -> tuple[str, int | None, str]:
    """Return the name of the model, the number of the version or None, and the version's label or ""."""
    return spec.name, spec.version.value if spec.HasField("version") else None, spec.version_label


def _spec(version: Version, signature: str = "") -> ModelSpec:
    return ModelSpec(name=version.model, version={"value": version.number}, signature_name=signature)


def _prediction_log(
    spec: ModelSpec, inputs: Arrays, outputs: Arrays, private: PrivateColumns | None
) -> PredictionLog | None:
    """Return the record of a request; None if private columns cannot be removed from it."""
    if private is not None:
        masked_inputs = private.mask_request(spec.signature_name, inputs)
        if masked_inputs is None:
            return None
        inputs, outputs = masked_inputs, private.mask_arrays(outputs)
    log = PredictLog(request=PredictRequest(model_spec=spec), response=PredictResponse(model_spec=spec))
    for arrays, protos in ((inputs, log.request.inputs), (outputs, log.response.outputs)):
        for name, value in arrays.items():
            to_proto(value, protos[name])
    return PredictionLog(predict_log=log)
