"""The OpenAPI document of the REST API, made from the routes that the server registers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiohttp import web

PARAMETERS = {"model": "[^/:]+", "version": "[0-9]{1,18}", "label": "[^/:]+"}
"""Parameter of a path → the regular expression of its values."""


def _object(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object that has these properties."""
    return {"type": "object", "properties": properties, "required": [*properties]}


_TEXT = {"type": "string"}
_ANY_OBJECT = {"type": "object"}

# JSON schemas of bodies and answers.
INPUTS = {
    "type": "object",
    "properties": {"signature_name": _TEXT, "instances": {"type": "array", "minItems": 1}, "inputs": {}},
    "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
    "examples": [{"instances": [1.5, 2.5]}],
}
EXAMPLES = {
    "type": "object",
    "properties": {
        "signature_name": _TEXT,
        "context": _ANY_OBJECT,
        "examples": {"type": "array", "minItems": 1, "items": _ANY_OBJECT},
    },
    "required": ["examples"],
    "examples": [{"examples": [{"x": 0.25}, {"x": 1.0}]}],
}
OUTPUTS = {"oneOf": [_object(predictions={}), _object(outputs={})]}
_PAIR = {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 2, "maxItems": 2}
CLASSES = _object(result={"type": "array", "items": {"type": "array", "items": _PAIR}})
VALUES = _object(result={"type": "array", "items": {"type": "number"}})
_STATE = _object(version=_TEXT, state=_TEXT, status=_object(error_code=_TEXT, error_message=_TEXT))
STATES = _object(model_version_status={"type": "array", "items": _STATE})
SIGNATURES = _object(model_spec=_ANY_OBJECT, metadata=_object(signature_def=_ANY_OBJECT))
_ERROR = _object(error=_TEXT)
_ERRORS = {
    "400": "The request is not valid.",
    "404": "No such model, version or label is loaded.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "429": "Too many requests are in progress; try again.",
}


class Route(NamedTuple):
    """An operation of the REST API.

    Attributes:
      method: get or post.
      path: its parameters, of `PARAMETERS`, are in braces.
      handler: answers a request.
      summary: what the operation does.
      answer: JSON schema of the answer; None for text.
      body: JSON schema of the body of the request; None for no body.
    """

    method: str
    path: str
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    summary: str
    answer: Mapping[str, Any] | None
    body: Mapping[str, Any] | None = None

    def register(self, router: web.UrlDispatcher) -> None:
        """Add the route to an application's router."""
        getattr(router, f"add_{self.method}")(re.sub(r"{(\w+)}", _with_pattern, self.path), self.handler)


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "The REST API of TensorFlow Serving, as this server has it", "version": "1"},
        "paths": paths,
    }


def _with_pattern(parameter: re.Match[str]) -> str:
    return f"{{{parameter[1]}:{PARAMETERS[parameter[1]]}}}"


def _operation(route: Route) -> dict[str, Any]:
    content = {"text/plain": {}} if route.answer is None else {"application/json": {"schema": route.answer}}
    names = re.findall(r"{(\w+)}", route.path)
    schemas = {name: {"type": "string", "pattern": f"^{PARAMETERS[name]}$"} for name in names}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": schema} for name, schema in schemas.items()
        ],
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{
                status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
                for status, text in _ERRORS.items()
                if (route.body is not None) or (status == "404" and names)
            },
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    return operation
