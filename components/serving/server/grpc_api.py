"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

from __future__ import annotations

import functools
import socket
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from components.serving.server.library import Version
from components.serving.server.refusal import RequestError, failed, invalid
from components.serving.server.servable import Arrays, Signature
from components.serving.server.service import DEFAULT_SIGNATURE, Asked, Service
from components.serving.server.sources import sources
from components.serving.server.tensors import from_proto, put

_UNKNOWN = 2
"""tensorflow.error.Code of a version that is not loaded."""

SERVERS = 256
"""That share the port, and with it the connections. Each takes one request per turn of the event loop, however many
wait; with more of them than connections, half as many again are answered, for a third less CPU."""


async def listen(service: Service, host: str, port: int, most_bytes: int) -> tuple[list[Any], int]:
    """Starts to listen.

    Args:
      service: answers, or refuses what is too much at once.
      host: the address to listen at.
      port: 0: any that is free.
      most_bytes: of a request.

    Returns:
      The servers and their port.

    Raises:
      OSError: the port is taken.
    """
    # A port that may be shared is shared with anybody, another process of ours too.
    with socket.socket() as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind((host, port))
    options = [("grpc.max_receive_message_length", most_bytes), ("grpc.so_reuseport", 1)]
    servers = []
    for _ in range(SERVERS):
        server = grpc.aio.server(options=options)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Prediction(service), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Model(service), server)
        try:
            port = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"port {port} of {host} cannot be listened at: {error}") from error
        servers.append(server)
    for server in servers:
        await server.start()
    return servers, port


async def _refuse(context: Any, error: Exception) -> None:
    """Ends a request that cannot be answered, in gRPC's way."""
    told = error if isinstance(error, RequestError) else failed(error)
    await context.abort(told.code, str(told))


class _Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):  # type: ignore[misc]
    """Predict, Classify, Regress, GetModelMetadata."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        try:
            asked = _asked(request.model_spec)
            version, answers = await self._service.predict(asked, "GRPC", functools.partial(_inputs, request.inputs))
            response = predict_pb2.PredictResponse()
            _tell(response.model_spec, version, asked.signature)
            for name in request.output_filter or answers:
                if name not in answers:
                    raise invalid(f"output_filter: there is no output {name!r}; known are {sorted(answers)}")
                put(answers[name], response.outputs[name])
            return response
        except Exception as error:
            await _refuse(context, error)

    async def Classify(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        try:
            asked = _asked(request.model_spec)
            version, rows = await self._service.classify(asked, "GRPC", _examples(request.input))
            response = classification_pb2.ClassificationResponse()
            _tell(response.model_spec, version, asked.signature)
            for row in rows:
                told = response.result.classifications.add()
                for label, score in row:
                    told.classes.add(label=label, score=score)
            return response
        except Exception as error:
            await _refuse(context, error)

    async def Regress(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        try:
            asked = _asked(request.model_spec)
            version, values = await self._service.regress(asked, "GRPC", _examples(request.input))
            response = regression_pb2.RegressionResponse()
            _tell(response.model_spec, version, asked.signature)
            for value in values:
                response.result.regressions.add(value=value)
            return response
        except Exception as error:
            await _refuse(context, error)

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        try:
            if list(request.metadata_field) != ["signature_def"]:
                raise invalid(f"metadata_field: expected signature_def, received {list(request.metadata_field)}")
            version, servable = self._service.servable(_asked(request.model_spec))
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name in servable.signatures:
                signatures.signature_def[name].CopyFrom(servable.meta_graph.signature_def[name])
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            _tell(response.model_spec, version, "")
            response.metadata["signature_def"].Pack(signatures)
            return response
        except Exception as error:
            await _refuse(context, error)


class _Model(model_service_pb2_grpc.ModelServiceServicer):  # type: ignore[misc]
    """GetModelStatus, HandleReloadConfigRequest."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        try:
            asked = _asked(request.model_spec)
            response = get_model_status_pb2.GetModelStatusResponse()
            for version in self._service.library.status(asked.model, asked.version, asked.label):
                told = response.model_version_status.add(version=version.number, state=version.state)
                if version.error:
                    told.status.error_code = _UNKNOWN
                    told.status.error_message = version.error
            return response
        except Exception as error:
            await _refuse(context, error)

    async def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        try:
            library = self._service.library
            library.replace_sources(sources(request.config))
            await library.look()
            return model_management_pb2.ReloadConfigResponse()
        except Exception as error:
            await _refuse(context, error)


def _asked(spec: Any) -> Asked:
    number = spec.version.value if spec.HasField("version") else None
    return Asked(spec.name, number, spec.version_label or None, spec.signature_name or DEFAULT_SIGNATURE)


def _inputs(protos: Any, _signature: Signature) -> Arrays:
    return {name: from_proto(proto) for name, proto in protos.items()}


def _tell(spec: Any, version: Version, signature: str) -> None:
    spec.name, spec.version.value, spec.signature_name = version.model, version.number, signature


def _examples(given: Any) -> Any:
    """The tf.Examples of an Input, serialized, shape [batch]."""
    kind = given.WhichOneof("kind")
    if kind == "example_list_with_context":
        shared, each = given.example_list_with_context.context, given.example_list_with_context.examples
    else:
        shared, each = None, given.example_list.examples
    if not each:
        raise invalid("input: expected at least one example")
    found = np.empty(len(each), object)
    for number, example in enumerate(each):
        if shared is not None:
            # What the example itself says goes before what all share.
            whole = tf.train.Example()
            whole.CopyFrom(shared)
            for name, feature in example.features.feature.items():
                whole.features.feature[name].CopyFrom(feature)
            example = whole
        found[number] = example.SerializeToString()
    return found
