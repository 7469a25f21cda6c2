"""The gRPC API of the Open Inference Protocol, version 2."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from components.compat.protobuf import create_messages
from components.serving.server.errors import RequestError
from components.serving.server.inference_service import SERVER, InferenceRequest, InferenceService, create_spec
from components.serving.server.inference_tensors import Tensor, get_datatype, to_raw

_SERVICE = "inference.GRPCInferenceService"
_MODEL = {"name": "string", "version": "string"}
_TENSOR = {"name": "string", "datatype": "string", "shape": "repeated int64"}
_CONTENTS = {"parameters": "repeated Parameter", "contents": "InferTensorContents"}
MESSAGES = create_messages(
    "inference",
    {
        "ServerLiveResponse": {"live": "bool"},
        "ServerReadyResponse": {"ready": "bool"},
        "ModelReadyRequest": _MODEL,
        "ModelReadyResponse": {"ready": "bool"},
        "ServerMetadataRequest": {},
        "ServerMetadataResponse": {"name": "string", "version": "string", "extensions": "repeated string"},
        "ModelMetadataRequest": _MODEL,
        "TensorMetadata": _TENSOR,
        "ModelMetadataResponse": {
            "name": "string",
            "versions": "repeated string",
            "platform": "string",
            "inputs": "repeated TensorMetadata",
            "outputs": "repeated TensorMetadata",
        },
        "InferParameter": {"bool_param": "bool", "int64_param": "int64", "string_param": "string"},
        # The entry of a map: a map is encoded as a repeated field of such messages.
        "Parameter": {"key": "string", "value": "InferParameter"},
        "InferTensorContents": {
            "bool_contents": "repeated bool",
            "int_contents": "repeated int32",
            "int64_contents": "repeated int64",
            "uint_contents": "repeated uint32",
            "uint64_contents": "repeated uint64",
            "fp32_contents": "repeated float",
            "fp64_contents": "repeated double",
            "bytes_contents": "repeated bytes",
        },
        "InferTensor": _TENSOR | _CONTENTS,
        "InferRequestedOutputTensor": {"name": "string", "parameters": "repeated Parameter"},
        "ModelInferRequest": {
            "model_name": "string",
            "model_version": "string",
            "id": "string",
            "parameters": "repeated Parameter",
            "inputs": "repeated InferTensor",
            "outputs": "repeated InferRequestedOutputTensor",
            "raw_input_contents": "repeated bytes",
        },
        "ModelInferResponse": {
            "model_name": "string",
            "model_version": "string",
            "id": "string",
            "parameters": "repeated Parameter",
            "outputs": "repeated InferTensor",
            "raw_output_contents": "repeated bytes",
        },
    },
)
"""The messages of open_inference_grpc.proto. Names of messages are not sent, so messages with equal fields are one."""
_CONTENTS_OF = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Data type → field of InferTensorContents. FP16 and BF16 are sent as raw bytes only."""


class InferenceGrpc:
    """Implements the methods of GRPCInferenceService."""

    def __init__(self, inference: InferenceService) -> None:
        self._inference = inference

    def create_handler(self) -> grpc.GenericRpcHandler:
        """Create the handler of all methods."""
        unary = {
            "ModelReady": self._model_ready,
            "ServerMetadata": self._describe_server,
            "ModelMetadata": self._describe_model,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=MESSAGES[f"{name}Request"].FromString,
                response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
            )
            for name, method in unary.items()
        }
        # A busy server must answer these. A method that receives a stream does not read its message unless it is asked
        # to, so that the message needs no memory, and grpc_service does not count the request as in progress.
        for name, method in {"ServerLive": self._live, "ServerReady": self._ready}.items():
            serialize = MESSAGES[f"{name}Response"].SerializeToString
            handlers[name] = grpc.stream_unary_rpc_method_handler(method, response_serializer=serialize)
        return grpc.method_handlers_generic_handler(_SERVICE, handlers)

    async def _live(self, _messages: Any, _context: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def _ready(self, _messages: Any, _context: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._inference.is_ready())

    async def _model_ready(self, request: Any, _context: Any) -> Any:
        ready = self._inference.is_model_ready(request.name, request.version)
        return MESSAGES["ModelReadyResponse"](ready=ready)

    async def _describe_server(self, _request: Any, _context: Any) -> Any:
        return MESSAGES["ServerMetadataResponse"](**SERVER)

    async def _describe_model(self, request: Any, _context: Any) -> Any:
        return MESSAGES["ModelMetadataResponse"](**self._inference.describe_model(request.name, request.version))

    async def _infer(self, request: Any, _context: Any) -> Any:
        with self._inference.service.count_rejections("GRPC"):
            inference = _read(request)
        version, outputs = await self._inference.infer(inference, "GRPC")
        response = MESSAGES["ModelInferResponse"](model_name=request.model_name, model_version=version, id=request.id)
        datatypes = {name: get_datatype(name, array) for name, array in outputs.items()}
        # A message contains either raw bytes or typed contents. The response has the form of the request.
        raw = bool(request.raw_input_contents) or not _CONTENTS_OF.keys() >= set(datatypes.values())
        for name, array in outputs.items():
            output = response.outputs.add(name=name, datatype=datatypes[name], shape=array.shape)
            if raw:
                response.raw_output_contents.append(to_raw(array))
            else:
                getattr(output.contents, _CONTENTS_OF[datatypes[name]]).extend(array.ravel().tolist())
        return response


def _read_contents(tensor: Any) -> list[Any] | npt.NDArray[Any]:
    field = _CONTENTS_OF.get(tensor.datatype)
    if field is None:
        raise RequestError(
            f"input {tensor.name!r}: expected raw_input_contents, or a datatype of {', '.join(_CONTENTS_OF)}, "
            f"received {tensor.datatype!r}"
        )
    values = [*getattr(tensor.contents, field)]
    # Strings of JSON are text, so that the conversion of JSON does not take bytes.
    return np.array(values, object) if tensor.datatype == "BYTES" else values


def _read(request: Any) -> InferenceRequest:
    """Read a ModelInferRequest; raise RequestError if it contradicts itself."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise RequestError(f"expected raw_input_contents of {len(request.inputs)} inputs, received {len(raw)}")
    tensors = {}
    for number, tensor in enumerate(request.inputs):
        if tensor.name in tensors:
            raise RequestError(f"expected every input once, received {tensor.name!r} again")
        data = raw[number] if raw else _read_contents(tensor)
        tensors[tensor.name] = Tensor(tensor.datatype, tensor.shape, data)
    parameters = {entry.key: entry.value.string_param for entry in request.parameters}
    spec = create_spec(request.model_name, request.model_version, parameters.get("signature_name", ""))
    return InferenceRequest(spec, request.id, tensors, tuple(output.name for output in request.outputs))
