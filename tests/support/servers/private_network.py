"""A loopback-only network namespace for the tests, because servers of TensorFlow and Beam listen on all interfaces."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def enter() -> bool:
    """Move this thread and its future children into a new network; return False without the privileges."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True
