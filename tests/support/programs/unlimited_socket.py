"""A socket that a process may not restrict: it is bound to another interface, and the process is unprivileged."""

from __future__ import annotations

import os
import socket

from components.trainer.cluster.loopback import limit_to_loopback
from components.trainer.cluster.tf_config import Role

_NOBODY = 65534


def main(interface: str) -> int:
    """Try to restrict a socket as user nobody; return its port."""
    with socket.create_server(("", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        port: int = server.getsockname()[1]
        os.setuid(_NOBODY)
        with limit_to_loopback(Role("ps", 0, {"ps": (f"127.0.0.1:{port}",)})):
            pass
    return port
