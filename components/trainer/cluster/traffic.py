"""Count the bytes that this process sends and receives over TCP, from the kernel's counters of its sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_INFO_BYTES = 216
_RECEIVED = struct.Struct("=128xQ")
_SENT = struct.Struct("=200xQQ")
"""Positions of `tcpi_bytes_received`, and of `tcpi_bytes_sent` and `tcpi_bytes_retrans`, in the kernel's struct
tcp_info (include/uapi/linux/tcp.h). The last two exist since Linux 4.19."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class Traffic:
    """The bytes of all TCP connections that this process opens after the creation of this object.

    TensorFlow and gRPC do not count the bytes of their calls, and the counters in /proc/net belong to the whole machine
    (or network namespace), where the tasks of a local cluster cannot be told apart. The kernel counts the payload of
    each socket; retransmitted bytes and headers are not included. A connection that is opened and closed between two
    calls of `measure` is not counted, nor are the last bytes before a connection closes.
    """

    def __init__(self) -> None:
        self._inherited = {inode for inode, _ in _list_sockets()}
        self._counts: dict[int, tuple[int, int]] = {}

    def measure(self) -> tuple[int, int]:
        """Return the bytes that were sent and received so far."""
        for inode, descriptor in _list_sockets():
            if inode not in self._inherited and (counts := _read_counts(descriptor)):
                self._counts[inode] = counts
        return sum(sent for sent, _ in self._counts.values()), sum(received for _, received in self._counts.values())


def _list_sockets() -> Iterator[tuple[int, int]]:
    """Yield the inode and the file descriptor of every socket of this process."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _, inode = str(entry.readlink()).partition(":")
            if kind == "socket":
                yield int(inode.strip("[]")), int(entry.name)


def _read_counts(descriptor: int) -> tuple[int, int] | None:
    """Return the bytes that a TCP socket has sent and received; None for other sockets, and if it was closed."""
    try:
        # Read a copy of the descriptor, because gRPC may close the original at any time.
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family not in _INTERNET or connection.type != socket.SOCK_STREAM:
                return None
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None
    if len(info) < _INFO_BYTES:
        return None
    sent, repeated = _SENT.unpack_from(info)
    return sent - repeated, _RECEIVED.unpack_from(info)[0]
