"""Tests that the bytes of a process's connections are counted, also of gRPC's, and that nothing else is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from components.trainer.cluster.traffic import Traffic
from tests.support.servers.in_fork_server import in_child, main_of

SENT, ANSWERED = 1_000_003, 70_001


def connect() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    return client, server


def transfer(sender: socket.socket, receiver: socket.socket, size: int) -> None:
    remaining = size
    sender.setblocking(False)
    receiver.setblocking(True)
    unsent = memoryview(bytes(size))
    while remaining:
        if unsent:
            unsent = unsent[sender.send(unsent) :]
        remaining -= len(receiver.recv(1 << 16))


def test_every_byte_of_a_connection_is_counted_and_stays_counted_after_its_end() -> None:
    traffic = Traffic()
    client, server = connect()
    transfer(client, server, SENT)
    transfer(server, client, ANSWERED)
    # Both ends belong to this process.
    assert traffic.measure() == (SENT + ANSWERED, SENT + ANSWERED)
    client.close()
    server.close()
    assert traffic.measure() == (SENT + ANSWERED, SENT + ANSWERED)
    client, server = connect()
    transfer(client, server, ANSWERED)
    assert traffic.measure() == (SENT + 2 * ANSWERED, SENT + 2 * ANSWERED)
    client.close()
    server.close()


def test_connections_of_the_parent_process_and_other_files_are_not_counted(tmp_path: Path) -> None:
    client, server = connect()
    traffic = Traffic()
    transfer(client, server, SENT)
    left, right = socket.socketpair()
    left.sendall(b"not TCP")
    with (tmp_path / "file").open("w") as file:
        file.write("text")
        assert traffic.measure() == (0, 0)
    for end in (client, server, left, right):
        end.close()


@pytest.mark.both_lines
@pytest.mark.extended
def test_tensor_that_tensorflow_reads_from_a_ps_is_counted(tmp_path: Path) -> None:
    size, reads = 4_000_000, 3
    sent, received = in_child(tmp_path / "test.log", main_of, "read_tensor", size, reads)
    # Both ends belong to the same process. gRPC adds headers and acknowledgements.
    assert reads * size <= received <= 1.01 * reads * size
    assert received <= sent <= 1.01 * reads * size
