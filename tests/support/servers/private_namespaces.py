"""Namespaces of the tests' own processes: a network with only loopback, and mounts that end with the processes.

Servers of TensorFlow and Beam listen on all interfaces. A test that is killed cannot unmount its file systems.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def enter() -> bool:
    """Move this thread and its future children into new namespaces; return False without the privileges."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET | _CLONE_NEWNS):
        return False
    _make_mounts_private(libc)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True


def replace_folder(folder: Path, replacement: Path) -> None:
    """Let this process and its future children, but no other process, find another folder at the path of a folder.

    Raises:
      OSError: The process lacks the privileges.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "cannot create a namespace of mounts")
    _make_mounts_private(libc)
    if libc.mount(os.fsencode(replacement), os.fsencode(folder), None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), f"cannot mount {replacement} at {folder}")


def _make_mounts_private(libc: ctypes.CDLL) -> None:
    # Otherwise, new mounts would appear in the namespace of the parent process, too. In a chroot, / is not a mount
    # (EINVAL); tools/test_current.sh has made the mounts there private.
    if libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) and ctypes.get_errno() != errno.EINVAL:
        raise OSError(ctypes.get_errno(), "cannot make the mounts private")
