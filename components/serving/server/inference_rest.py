"""The REST API of the Open Inference Protocol, version 2, with its extension for binary tensor data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt
from aiohttp import web

from components.serving.server import json_codec
from components.serving.server.errors import RequestError
from components.serving.server.inference_service import SERVER, InferenceRequest, InferenceService, create_spec
from components.serving.server.inference_tensors import Tensor, get_datatype, to_raw, to_values
from components.serving.server.rest_messages import create_response, read_body

_LENGTH_HEADER = "Inference-Header-Content-Length"
"""Number of bytes of the JSON object at the beginning of a body; the raw bytes of tensors follow."""
_MODEL = "/v2/models/{model:[^/]+}"
_MODELS = (_MODEL, f"{_MODEL}/versions/{{version:[^/]+}}")
_NOT_READY = 503
_T = TypeVar("_T")


class RequestBody(NamedTuple):
    """A parsed body.

    Attributes:
      id: Identifier that the response repeats; "" for none.
      signature: Name of the signature; "" selects it by the names of the inputs.
      tensors: Input name → tensor.
      outputs: Requested outputs → whether as raw bytes; empty for all outputs.
      binary: Whether outputs are sent as raw bytes if `outputs` is empty.
    """

    id: str
    signature: str
    tensors: Mapping[str, Tensor]
    outputs: Mapping[str, bool]
    binary: bool


class InferenceRest:
    """Handles the requests of the REST API."""

    def __init__(self, inference: InferenceService) -> None:
        self._inference, self._service = inference, inference.service

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the paths of the protocol to an application."""
        router.add_get("/v2", self._server)
        router.add_get("/v2/health/live", self._live)
        router.add_get("/v2/health/ready", self._ready)
        for model in _MODELS:
            router.add_get(model, self._metadata)
            router.add_get(f"{model}/ready", self._model_ready)
            router.add_post(f"{model}/infer", self._infer)

    async def _server(self, _request: web.Request) -> web.Response:
        return create_response(SERVER)

    async def _live(self, _request: web.Request) -> web.Response:
        return create_response({"live": True})

    async def _ready(self, _request: web.Request) -> web.Response:
        ready = self._inference.is_ready()
        return create_response({"ready": ready}, 200 if ready else _NOT_READY)

    async def _model_ready(self, request: web.Request) -> web.Response:
        model, version = _names(request)
        ready = self._inference.is_model_ready(model, version)
        return create_response({"name": model, "ready": ready}, 200 if ready else _NOT_READY)

    async def _metadata(self, request: web.Request) -> web.Response:
        return create_response(self._inference.describe_model(*_names(request)))

    async def _infer(self, request: web.Request) -> web.Response:
        model, version = _names(request)
        with self._service.admit("REST"):
            with self._service.count_rejections("REST"):
                content = await read_body(self._service, request)
                body = parse(content, request.headers.get(_LENGTH_HEADER))
                spec = create_spec(model, version, body.signature)
            inference = InferenceRequest(spec, body.id, body.tensors, tuple(body.outputs))
            number, outputs = await self._inference.infer(inference, "REST")
            return _create_response(model, number, body, outputs)


def _names(request: web.Request) -> tuple[str, str]:
    """Return the name of the model, and the number or label of the version or ""."""
    return request.match_info["model"], request.match_info.get("version", "")


def parse(content: bytes, json_length: str | None = None) -> RequestBody:
    """Parse the body of a request.

    Args:
      content: The body.
      json_length: Value of the header with the number of bytes of the JSON object. If None, the body is JSON only.

    Raises:
      RequestError: If the body does not conform to the protocol.
    """
    end = len(content)
    if json_length is not None:
        end = int(json_length) if json_length.isdecimal() and len(json_length) <= 18 else -1
        if not 0 <= end <= len(content):
            raise RequestError(f"{_LENGTH_HEADER}: expected at most {len(content)}, received {json_length[:20]!r}")
    request = json_codec.parse(content[:end])
    parameters = _get(request, "parameters", dict, "", {})
    tensors: dict[str, Tensor] = {}
    for number, item in enumerate(_get(request, "inputs", list, "")):
        where = f"inputs[{number}]"
        name = _get(_check(item, dict, where), "name", str, where)
        if name in tensors:
            raise RequestError(f"{where}: expected every input once, received {name!r} again")
        data, end = _read_data(item, where, content, end)
        tensors[name] = Tensor(_get(item, "datatype", str, where), _get(item, "shape", list, where), data)
    if json_length is not None and end != len(content):
        raise RequestError(f"expected {end} bytes, of which inputs declare binary_data_size, received {len(content)}")
    binary = _get(parameters, "binary_data_output", bool, "parameters", False)
    outputs = {}
    for number, item in enumerate(_get(request, "outputs", list, "", [])):
        where = f"outputs[{number}]"
        options = _get(_check(item, dict, where), "parameters", dict, where, {})
        if unknown := options.keys() - {"binary_data"}:
            raise RequestError(f"{where}.parameters: expected binary_data, received {min(unknown)!r}")
        outputs[_get(item, "name", str, where)] = _get(options, "binary_data", bool, where, binary)
    signature = _get(parameters, "signature_name", str, "parameters", "")
    return RequestBody(_get(request, "id", str, "", ""), signature, tensors, outputs, binary)


def _read_data(item: Mapping[str, Any], where: str, content: bytes, start: int) -> tuple[bytes | list[Any], int]:
    """Return the data of an input, and the end of its raw bytes or `start`."""
    size = _get(_get(item, "parameters", dict, where, {}), "binary_data_size", int, where, -1)
    if size < 0:
        return _get(item, "data", list, where), start
    if start + size > len(content):
        raise RequestError(f"{where}: expected {size} bytes of binary data, received {len(content) - start}")
    return content[start : start + size], start + size


def _create_response(
    model: str, version: str, body: RequestBody, outputs: Mapping[str, npt.NDArray[Any]]
) -> web.Response:
    descriptions, parts = [], []
    for name, array in outputs.items():
        output: dict[str, Any] = {"name": name, "datatype": get_datatype(name, array), "shape": list(array.shape)}
        if body.outputs.get(name, body.binary):
            parts.append(to_raw(array))
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            output["data"] = to_values(name, array)
        descriptions.append(output)
    answer = {"model_name": model, "model_version": version, "outputs": descriptions}
    if body.id:
        answer["id"] = body.id
    if not parts:
        return create_response(answer)
    header = json.dumps(answer).encode()
    response = web.Response(body=b"".join([header, *parts]), content_type="application/octet-stream")
    response.headers[_LENGTH_HEADER] = str(len(header))
    return response


def _get(value: Mapping[str, Any], key: str, kind: type[_T], where: str, default: _T | None = None) -> _T:
    """Return a field of a JSON object; raise RequestError if it has another type, or is missing without a default."""
    field = value.get(key)
    return default if field is None and default is not None else _check(field, kind, f"{where}.{key}" if where else key)


def _check(value: Any, kind: type[_T], where: str) -> _T:
    if type(value) is not kind:
        received = json_codec.describe_type(type(value))
        raise RequestError(f"{where}: expected {json_codec.describe_type(kind)}, received {received}")
    return value
