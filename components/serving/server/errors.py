"""The error that a client receives, with the status code of each API."""

from __future__ import annotations

from grpc import StatusCode

_MAX_LENGTH = 1000
"""Characters of a message. TensorFlow's can contain a whole graph, and gRPC sends the message in a header."""
_HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.NOT_FOUND: 404,
    StatusCode.DEADLINE_EXCEEDED: 408,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.INTERNAL: 500,
}


class RequestError(Exception):
    """A request that is not answered.

    Args:
      message: What was expected and what was received; shortened to 1,000 characters.
      code: INVALID_ARGUMENT if the request itself is wrong.
      http_status: Status of the REST API. If None, the status that fits the code.
    """

    def __init__(
        self, message: str, code: StatusCode = StatusCode.INVALID_ARGUMENT, http_status: int | None = None
    ) -> None:
        super().__init__(message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]}…")
        self.code, self.http_status = code, http_status or _HTTP_STATUS[code]
