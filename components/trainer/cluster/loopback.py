"""Limit the TensorFlow server of a task to the loopback interface if all tasks of the cluster run on one machine.

TensorFlow's server listens on every interface, whatever its address (`GrpcServer::Init` passes 0.0.0.0 to gRPC), and
does not offer an option to change this. Linux can limit a socket that already listens with SO_BINDTODEVICE, without
privileges since Linux 5.7. The kernel checks the interface of every packet, so accepted connections end as well.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from components.trainer.cluster import heartbeat
from components.trainer.cluster.tf_config import Role

_OPTION = (socket.SOL_SOCKET, socket.SO_BINDTODEVICE)
_INTERFACE, _NAME_BYTES = b"lo\0", 16
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_PAUSE_SECONDS = 0.02


@contextlib.contextmanager
def limit_to_loopback(role: Role | None) -> Iterator[None]:
    """Limit the server that the body starts to the loopback interface, and warn if this is not possible.

    A thread looks for the server's sockets until the body ends. After the body would be too late: the coordinator of
    parameter servers listens while it waits for all other tasks, and a user's run_fn ends after the training.

    Args:
      role: Role of this process. Sockets are not limited if it is None, does not listen, or belongs to a cluster of
        several machines.
    """
    addresses = role.cluster.get(role.kind, ()) if role and role.is_on_one_machine else ()
    if role is None or not addresses:
        yield
        return
    port = int(addresses[role.index].rpartition(":")[2])
    has_ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(port, has_ended), name="loopback", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        if error := limit_sockets(port):
            heartbeat.warn(
                f"{role.name}: expected to limit port {port} to the interface lo, received {error.strerror}: it is "
                "open on every interface, without authentication. Block it in the firewall, or use Linux 5.7 or newer"
            )


def _follow(port: int, has_ended: threading.Event) -> None:
    while not has_ended.wait(_PAUSE_SECONDS):
        limit_sockets(port)


def limit_sockets(port: int) -> OSError | None:
    """Limit all TCP sockets of this process at a local port to the loopback interface.

    Returns:
      The error of a socket that could not be limited. It still listens on every interface.
    """
    refusal = None
    for entry in Path("/proc/self/fd").iterdir():
        try:
            # Do not close it here, because TensorFlow owns the descriptor. Other kinds of files raise an OSError.
            connection = socket.socket(fileno=int(entry.name))
        except OSError:
            continue
        try:
            is_server = connection.family in _INTERNET and connection.getsockname()[1] == port
            # A process without privileges may set the interface once, but not again.
            if is_server and connection.getsockopt(*_OPTION, _NAME_BYTES) != _INTERFACE:
                connection.setsockopt(*_OPTION, _INTERFACE)
        except OSError as error:
            # Another thread may have closed it.
            refusal = refusal if error.errno == errno.EBADF else error
        finally:
            connection.detach()
    return refusal
