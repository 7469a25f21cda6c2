"""TensorFlow Serving's REST API: https://www.tensorflow.org/tfx/serving/api_rest."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from google.protobuf import json_format
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from components.serving.server import json_tensors
from components.serving.server.http1 import Request, Response, refusal
from components.serving.server.refusal import RequestError, failed, invalid
from components.serving.server.service import Asked, Service

_METRICS = "/monitoring/prometheus/metrics"
_TOLD = 100
"""Characters of a path that a refusal repeats."""
_MODEL = re.compile(
    r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>\d{1,18})|/labels/(?P<label>[^/:]+))?"
    r"(?::(?P<api>predict|classify|regress)|/(?P<metadata>metadata))?"
)


@dataclasses.dataclass(frozen=True)
class _Place:
    """What a path leads to.

    Attributes:
      what: predict, classify, regress, status, metadata or metrics.
      asked: of which model.
    """

    what: str
    asked: Asked

    @property
    def method(self) -> str:
        """HTTP's, that it takes; HEAD goes where GET does."""
        return "GET" if self.what in ("status", "metadata", "metrics") else "POST"


class Rest:
    """The REST API of a service.

    Args:
      service: answers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, request: Request) -> Response:
        """The answer to a request, or why there is none."""
        try:
            place = _place(request.target)
            if place is None:
                return refusal(404, f"{request.method} {request.target[:_TOLD]}: Not Found")
            if ("GET" if request.method == "HEAD" else request.method) != place.method:
                return refusal(405, f"{request.method} {request.target[:_TOLD]}: expected {place.method}")
            if place.what == "metrics":
                return Response(self._service.metrics.text(), kind="text/plain; charset=utf-8")
            if place.what == "status":
                return self._status(place.asked)
            if place.what == "metadata":
                return self._metadata(place.asked)
            return await self._told(place, json_tensors.parse(request.body))
        except RequestError as refused:
            return refusal(refused.http, str(refused))
        except Exception as error:
            return refusal(500, str(failed(error)))

    async def _told(self, place: _Place, told: dict[str, Any]) -> Response:
        asked = place.asked
        if "signature_name" in told:
            if not isinstance(told["signature_name"], str):
                raise invalid("signature_name: expected a string")
            asked = asked._replace(signature=told["signature_name"])
        if place.what == "predict":
            _, answers = await self._service.predict(asked, "REST", functools.partial(json_tensors.inputs, told))
            return _json(json_tensors.outputs(answers, "instances" in told))
        call = self._service.classify if place.what == "classify" else self._service.regress
        _, result = await call(asked, "REST", json_tensors.examples(told))
        return _json({"result": result})

    def _status(self, asked: Asked) -> Response:
        versions = self._service.library.status(asked.model, asked.version, asked.label)
        told = [
            {
                "version": str(version.number),
                "state": ModelVersionStatus.State.Name(version.state),
                "status": {"error_code": "UNKNOWN" if version.error else "OK", "error_message": version.error},
            }
            for version in versions
        ]
        return _json({"model_version_status": told})

    def _metadata(self, asked: Asked) -> Response:
        version, servable = self._service.servable(asked)
        signatures = {
            name: json_format.MessageToDict(servable.meta_graph.signature_def[name], preserving_proto_field_name=True)
            for name in servable.signatures
        }
        spec = {"name": version.model, "signature_name": "", "version": str(version.number)}
        return _json({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})


@functools.lru_cache(maxsize=64)
def _place(target: str) -> _Place | None:
    """Where a request goes; None: nowhere."""
    try:
        # A proxy may be sent the whole URL.
        path = target.partition("?")[0] if target.startswith("/") else urlsplit(target).path
    except ValueError:
        return None
    if path == _METRICS:
        return _Place("metrics", Asked(""))
    found = _MODEL.fullmatch(path)
    if found is None:
        return None
    model, version, label, api, metadata = found.groups()
    asked = Asked(unquote(model), int(version) if version else None, unquote(label) if label else None)
    return _Place(api or metadata or "status", asked)


def _json(value: Any) -> Response:
    # NaN and Infinity as TensorFlow Serving writes them.
    return Response(json.dumps(value).encode())
