"""Tests that another machine cannot reach the sockets of a cluster that runs on one machine.

A network namespace stands for the other machine.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.trainer.cluster.loopback import limit_to_loopback
from components.trainer.cluster.tf_config import Role
from tests.support.servers import another_machine
from tests.support.servers.another_machine import AnotherMachine
from tests.support.servers.in_fork_server import in_child, main_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not another_machine.is_possible(), reason="a second network takes root, ip and veth"),
]
PATIENCE_SECONDS = 60.0
REFUSED = "ConnectionRefusedError"


@pytest.fixture
def machine() -> Iterator[AnotherMachine]:
    with AnotherMachine() as created:
        yield created


def listen(family: socket.AddressFamily) -> socket.socket:
    """Listen on every interface, as TensorFlow does. An IPv6 socket also accepts mapped IPv4 connections."""
    is_ipv6 = family == socket.AF_INET6
    return socket.create_server(("", 0), family=family, dualstack_ipv6=is_ipv6)


def limit_task_at(port: int) -> None:
    with limit_to_loopback(Role("worker", 0, {"worker": (f"127.0.0.1:{port}", "127.0.0.1:1")})):
        pass


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_limited_socket_only_accepts_connections_from_this_machine(
    machine: AnotherMachine, family: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = machine.hosts[: 1 if family == socket.AF_INET else 2]
    with listen(family) as server, listen(family) as another:
        port, other_port = server.getsockname()[1], another.getsockname()[1]
        assert [machine.connect(host, port) for host in hosts] == ["connected"] * len(hosts)
        # A task that creates its strategy again limits the same socket twice.
        for _ in range(2):
            limit_task_at(port)
        assert [machine.connect(host, port) for host in hosts] == [REFUSED] * len(hosts)
        assert [machine.connect(host, other_port) for host in hosts] == ["connected"] * len(hosts)
        for host in ("127.0.0.1", "::1")[: len(hosts)]:
            socket.create_connection((host, port), 10).close()
    assert not caplog.records


def test_connection_that_was_accepted_before_the_limit_is_reset(machine: AnotherMachine) -> None:
    with listen(socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert machine.connect(machine.hosts[0], port) == "connected"
        outside, _ = server.accept()
        with outside, socket.create_connection(("127.0.0.1", port), 10) as client, server.accept()[0] as inside:
            limit_task_at(port)
            outside.settimeout(10)
            outside.sendall(b"!")
            assert machine.ask() == "ConnectionResetError"
            client.sendall(b"?")
            assert inside.recv(1) == b"?"


@pytest.mark.parametrize(
    "role",
    [
        None,
        Role("worker", 0, {"worker": ("127.0.0.1:{port}", "10.0.0.7:1")}),
        # An evaluator does not listen on a port and is not part of the cluster.
        Role("evaluator", 0, {"worker": ("127.0.0.1:{port}",)}),
    ],
)
def test_task_of_a_cluster_on_several_machines_is_not_limited(machine: AnotherMachine, role: Role | None) -> None:
    with listen(socket.AF_INET6) as server:
        port = server.getsockname()[1]
        if role is not None:
            cluster = {"worker": tuple(address.format(port=port) for address in role.cluster["worker"])}
            role = Role(role.kind, role.index, cluster)
        with limit_to_loopback(role):
            pass
        assert [machine.connect(host, port) for host in machine.hosts] == ["connected", "connected"]


def test_socket_is_limited_while_the_task_waits_for_its_peers(machine: AnotherMachine) -> None:
    with listen(socket.AF_INET6) as server:
        port = server.getsockname()[1]
        with limit_to_loopback(Role("chief", 0, {"chief": (f"127.0.0.1:{port}",)})):
            deadline = time.monotonic() + PATIENCE_SECONDS
            while machine.connect(machine.hosts[0], port) != REFUSED:
                assert time.monotonic() < deadline


def test_refusal_of_the_kernel_is_logged_with_port_and_interface(machine: AnotherMachine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    port = in_child(log, main_of, "unlimited_socket", machine.interface)
    assert (
        f"ps-0: expected to limit port {port} to the interface lo, received Operation not permitted" in log.read_text()
    )


PARAMETER_SERVER = {"kind": "parameter_server", "workers": 2, "ps": 1}
MULTI_WORKER = {"kind": "multi_worker", "workers": 2}


@pytest.mark.both_lines
@pytest.mark.parametrize(
    ("strategy", "calls_run_fn", "tasks"),
    [
        (MULTI_WORKER, False, {"worker-0", "worker-1"}),
        (MULTI_WORKER, True, {"worker-0", "worker-1"}),
        (PARAMETER_SERVER, False, {"chief-0", "worker-0", "worker-1", "ps-0"}),
        ({**PARAMETER_SERVER, "min_workers": 1}, False, {"chief-0", "worker-0", "worker-1", "ps-0"}),
    ],
)
def test_tasks_of_a_training_refuse_connections_from_another_machine(
    tmp_path: Path, strategy: dict[str, Any], calls_run_fn: bool, tasks: set[str]
) -> None:
    results = in_child(tmp_path / "log", main_of, "exposed_cluster", tmp_path, {"strategy": strategy}, calls_run_fn)
    assert results == {name: ["connected", "connected", REFUSED, REFUSED] for name in tasks}
