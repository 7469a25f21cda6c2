"""Ask model servers which versions they know, over TensorFlow Serving's REST API."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Collection

_SECONDS = 15.0
"""Longest wait. Servers must read their config file more often (`--model_config_file_poll_wait_seconds`)."""
_POLL_SECONDS = 0.2
_REQUEST_SECONDS = 2.0


def wait_until_listed(servers: Collection[str], model: str, versions: Collection[int]) -> None:
    """Wait until the servers list these versions of a model, loaded or not, but at most 15 seconds.

    Servers that do not run, or that do not serve the model, are not waited for: they have nothing to replace. For a
    server that cannot be asked from here, such as a container with a name of its own, the whole time passes.

    Args:
      servers: Addresses of REST APIs.
      model: Name of the model.
      versions: Numbers of the versions.
    """
    end, waiting = time.monotonic() + _SECONDS, list(servers)
    while waiting := [server for server in waiting if not _lists(server, model, versions)]:
        if time.monotonic() > end:
            return
        time.sleep(_POLL_SECONDS)


def _lists(server: str, model: str, versions: Collection[int]) -> bool:
    """Return whether a server lists all versions, or has nothing to replace."""
    host, _, port = server.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_REQUEST_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", f"/v1/models/{model}")
            answer = connection.getresponse()
            content = json.loads(answer.read())
            if answer.status != http.HTTPStatus.OK:
                return True
            return {int(status["version"]) for status in content["model_version_status"]}.issuperset(versions)
        except ConnectionRefusedError:
            return True
        except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
            return False
