"""The error that a client receives, with its status codes in gRPC and HTTP."""

from __future__ import annotations

from grpc import StatusCode

_MAX_LENGTH = 1000
"""Maximum characters of a message. TensorFlow's messages can contain a graph, and gRPC sends them in a header."""
_HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.NOT_FOUND: 404,
    StatusCode.DEADLINE_EXCEEDED: 408,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.INTERNAL: 500,
    StatusCode.UNAVAILABLE: 503,
}


class RequestError(Exception):
    """A request that the server rejects.

    Args:
      message: What was expected and what was received. Shortened to 1,000 characters.
      code: Status code of gRPC. The default INVALID_ARGUMENT means that the request itself is wrong.
      http_status: Status code of the REST API. If None, it follows from `code`.
    """

    def __init__(
        self, message: str, code: StatusCode = StatusCode.INVALID_ARGUMENT, http_status: int | None = None
    ) -> None:
        super().__init__(message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]}…")
        self.code, self.http_status = code, http_status or _HTTP_STATUS[code]
