"""Read the bodies of REST requests, and create the responses."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import hdrs, web
from grpc import StatusCode

from components.serving.server.errors import RequestError
from components.serving.server.service import Service

_ENCODINGS = ("gzip", "deflate")
"""Values of Content-Encoding that aiohttp decodes, of those that need no further package."""
_UNSUPPORTED = 415


async def read_body(service: Service, request: web.Request) -> bytes:
    """Wait for the body of a request, and decompress it.

    Raises:
      RequestError: If the body ends early, is too large, does not arrive in time or has an unknown encoding.
    """
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
    if encoding not in ("", "identity", *_ENCODINGS):
        raise RequestError(f"cannot decode the Content-Encoding {encoding!r}", http_status=_UNSUPPORTED)
    try:
        return await service.read(request.read())
    except web.RequestPayloadError as error:
        raise RequestError(f"the body is not valid: {error}") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise RequestError(str(error.text), StatusCode.RESOURCE_EXHAUSTED, error.status) from error


def create_response(value: Any, status: int = 200) -> web.Response:
    """Create a response with a JSON body."""
    # json writes NaN and Infinity, as TensorFlow Serving does, although JSON does not allow them.
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")


def create_error(status: int, text: str) -> web.Response:
    """Create the response to a request that is rejected, in the format that all APIs share."""
    if status != _UNSUPPORTED:
        return create_response({"error": text}, status)
    expected = f"expected {', '.join(_ENCODINGS)} or identity"
    response = create_response({"error": f"{text}; {expected}"}, status)
    # RFC 9110, section 15.5.16, recommends it.
    response.headers[hdrs.ACCEPT_ENCODING] = ", ".join(_ENCODINGS)
    return response
