"""The addresses at which a process listens, as the kernel reports them."""

from __future__ import annotations

import psutil

_LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listens_on_loopback(process: int, port: int | None = None) -> bool:
    """Return whether a process listens on loopback addresses and on no others; with a port, only at this port."""
    connections = psutil.Process(process).net_connections("tcp")
    addresses = [connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN]
    hosts = {address.ip for address in addresses if port in (None, address.port)}
    assert hosts, f"process {process} does not listen"
    return hosts <= _LOOPBACK
