"""The gRPC API of TensorFlow Serving: PredictionService and ModelService."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import classification_pb2 as classification
from tensorflow_serving.apis import get_model_metadata_pb2 as model_metadata
from tensorflow_serving.apis import get_model_status_pb2 as model_status
from tensorflow_serving.apis import model_management_pb2 as management
from tensorflow_serving.apis import predict_pb2, regression_pb2

from components.serving.server import model_config
from components.serving.server.errors import DisabledError, InvalidRequestError, RequestError, SlowClientError
from components.serving.server.model_manager import Version
from components.serving.server.predict_service import ModelRequest, PredictService
from components.serving.server.tensor_proto import from_proto, to_proto

_UNKNOWN = 2
"""tensorflow.error.Code of a version that is not loaded."""
_PREDICTION, _MODEL = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"


def create_server(
    service: PredictService, address: str, max_bytes: int, read_seconds: float, reload_root: Path | None
) -> tuple[grpc.aio.Server, int]:
    """Create the server; it is not started.

    Args:
      service: answers requests.
      address: host:port; port 0 for any free port.
      max_bytes: of a request.
      read_seconds: that a client may take to send a request.
      reload_root: folder within which HandleReloadConfigRequest accepts models; None to reject all.

    Returns:
      The server and its port.
    """
    handshake = ("grpc.server_handshake_timeout_ms", round(1000 * read_seconds))
    options = [("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", 0), handshake]
    server = grpc.aio.server(options=options)
    api = _Api(service, reload_root)
    for name, methods in {
        _PREDICTION: {
            "Predict": (predict_pb2.PredictRequest, api.predict),
            "Classify": (classification.ClassificationRequest, api.classify),
            "Regress": (regression_pb2.RegressionRequest, api.regress),
            "GetModelMetadata": (model_metadata.GetModelMetadataRequest, api.metadata),
        },
        _MODEL: {
            "GetModelStatus": (model_status.GetModelStatusRequest, api.status),
            "HandleReloadConfigRequest": (management.ReloadConfigRequest, api.reload),
        },
    }.items():
        # As methods of a stream of one message: of a unary method, gRPC reads the message itself, without a timeout.
        handlers = {
            method: grpc.stream_unary_rpc_method_handler(functools.partial(_answer, service, read_seconds, *each))
            for method, each in methods.items()
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers)])
    return server, server.add_insecure_port(address)


async def _answer(
    service: PredictService,
    read_seconds: float,
    message_type: Any,
    method: Callable[[Any], Awaitable[Any]],
    _messages: Any,
    context: grpc.aio.ServicerContext,
) -> bytes:
    # With a status set, gRPC ignores the empty answer. Unlike abort(), this leaves no traceback that holds the request.
    try:
        with service.admit("GRPC"):
            answer = await method(message_type.FromString(await _read(context, read_seconds)))
            return bytes(answer.SerializeToString())
    except DecodeError as error:
        code, text = InvalidRequestError.code, f"expected a {message_type.__name__}: {error}"
    except RequestError as error:
        code, text = error.code, str(error)
    except grpc.aio.BaseError:
        raise
    except Exception as error:
        logging.exception("a gRPC request failed")
        code, text = RequestError.code, f"{type(error).__name__}: {error}"
    context.set_code(code)
    context.set_details(text)
    return b""


async def _read(context: grpc.aio.ServicerContext, seconds: float) -> bytes:
    """Return the message; cheaper than asyncio.wait_for, which creates a task for each."""
    timer = asyncio.get_running_loop().call_later(seconds, asyncio.current_task().cancel)  # type: ignore[union-attr]
    try:
        message = await context.read()
    except asyncio.CancelledError:
        if timer.when() <= asyncio.get_running_loop().time():
            raise SlowClientError(f"expected the whole message within {seconds:g} s") from None
        raise
    finally:
        timer.cancel()
    if message is grpc.aio.EOF:
        raise InvalidRequestError("expected a message, received none")
    return bytes(message)


class _Api:
    """The methods of both services, from message to message."""

    def __init__(self, service: PredictService, reload_root: Path | None) -> None:
        self._service, self._manager, self._reload_root = service, service.manager, reload_root

    async def predict(self, request: Any) -> Any:
        def read(_signature: Any) -> dict[str, npt.NDArray[Any]]:
            return {name: from_proto(request.inputs[name]) for name in request.inputs}

        version, outputs = await self._service.predict(_model_request(request.model_spec), read)
        names = request.output_filter or outputs
        if unknown := [name for name in names if name not in outputs]:
            raise InvalidRequestError(f"output_filter: expected outputs of {sorted(outputs)}, received {unknown[0]!r}")
        response = predict_pb2.PredictResponse()
        _set_spec(response, version, request)
        for name in names:
            to_proto(outputs[name], response.outputs[name])
        return response

    async def classify(self, request: Any) -> Any:
        model = _model_request(request.model_spec)
        version, rows = await self._service.classify(model, _examples(request.input))
        response = classification.ClassificationResponse()
        _set_spec(response, version, request)
        for row in rows:
            classes = response.result.classifications.add().classes
            for label, score in row:
                classes.add(label=label, score=score)
        return response

    async def regress(self, request: Any) -> Any:
        model = _model_request(request.model_spec)
        version, values = await self._service.regress(model, _examples(request.input))
        response = regression_pb2.RegressionResponse()
        _set_spec(response, version, request)
        for value in values:
            response.result.regressions.add(value=value)
        return response

    async def metadata(self, request: Any) -> Any:
        if list(request.metadata_field) != ["signature_def"]:
            raise InvalidRequestError(f"metadata_field: expected signature_def, received {[*request.metadata_field]}")
        model = _model_request(request.model_spec)
        version = self._manager.find(model.model, model.version, model.label)
        signatures, response = model_metadata.SignatureDefMap(), model_metadata.GetModelMetadataResponse()
        with version as saved_model:
            for name in saved_model.signatures:
                signatures.signature_def[name].CopyFrom(saved_model.meta_graph.signature_def[name])
        response.model_spec.name, response.model_spec.version.value = version.model, version.number
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def status(self, request: Any) -> Any:
        model, response = _model_request(request.model_spec), model_status.GetModelStatusResponse()
        for version in self._manager.status(model.model, model.version, model.label):
            status = response.model_version_status.add(version=version.number, state=version.state).status
            if version.error:
                status.error_code, status.error_message = _UNKNOWN, version.error
        return response

    async def reload(self, request: Any) -> Any:
        if self._reload_root is None:
            raise DisabledError("HandleReloadConfigRequest is disabled; start the server with --reload_root=FOLDER")
        await self._manager.replace_sources(model_config.sources(request.config, self._reload_root))
        return management.ReloadConfigResponse()


def _model_request(spec: Any) -> ModelRequest:
    number = spec.version.value if spec.HasField("version") else None
    return ModelRequest("GRPC", spec.name, number, spec.version_label or None, spec.signature_name or "serving_default")


def _set_spec(response: Any, version: Version, request: Any) -> None:
    spec, signature = response.model_spec, request.model_spec.signature_name or "serving_default"
    spec.name, spec.version.value, spec.signature_name = version.model, version.number, signature


def _examples(value: Any) -> npt.NDArray[Any]:
    """Return the tf.Examples of an Input message, serialized, shape [batch]."""
    with_context = value.WhichOneof("kind") == "example_list_with_context"
    rows = value.example_list_with_context.examples if with_context else value.example_list.examples
    if not rows:
        raise InvalidRequestError("input: expected at least one example")
    serialized = np.empty(len(rows), object)
    for number, row in enumerate(rows):
        example = tf.train.Example()
        if with_context:
            example.CopyFrom(value.example_list_with_context.context)
        for name, feature in row.features.feature.items():
            example.features.feature[name].CopyFrom(feature)
        serialized[number] = example.SerializeToString()
    return serialized
