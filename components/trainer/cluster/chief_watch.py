"""Lets a task outlive its chief. It imports neither TensorFlow nor TFX."""

from __future__ import annotations

import contextlib
import socket
import threading

_CONNECT_SECONDS = 5.0
"""Timeout of a connection. A pod that has ended does not answer."""
_FIRST_SECONDS, _LATER_SECONDS = 1.0, 30.0
"""Seconds between two look-ups of the name, before and after the first one that succeeds. A new pod of the chief has
another IP address."""


class ChiefWatch:
    """Waits for the end of a chief, even if its name was removed with the job: a thread has looked up its IP address.

    Args:
      address: Host and port at which the chief's server listens.
    """

    def __init__(self, address: str) -> None:
        host, _, self._port = address.rpartition(":")
        self._host = host.strip("[]")
        self._ip: str | None = None

    def start(self) -> None:
        """Start the thread that looks up the address."""
        threading.Thread(target=self._look_up, daemon=True).start()

    def wait_for_end(self) -> None:
        """Wait until the chief has ended. Return at once if it has not been found, or does not answer."""
        if self._ip is None:
            return
        with contextlib.suppress(OSError):
            while True:
                with socket.create_connection((self._ip, int(self._port)), timeout=_CONNECT_SECONDS) as connection:
                    connection.settimeout(None)
                    # gRPC closes the connection when the chief ends, and also after two minutes without a request.
                    while connection.recv(4096):
                        pass

    def _look_up(self) -> None:
        pause = threading.Event()
        while True:
            with contextlib.suppress(OSError):
                self._ip = str(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0][4][0])
            pause.wait(_FIRST_SECONDS if self._ip is None else _LATER_SECONDS)
