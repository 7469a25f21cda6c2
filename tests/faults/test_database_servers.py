"""Database servers that are killed and restarted during a run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.base.errors import MachineError
from pipeline.authoring.preflight import check_store
from pipeline.core.metadata.store import Store
from tests.support.runs.store_writer import Writer
from tests.support.runs.toy_runs import result_of_toy, start_toy
from tests.support.servers.databases import PASSWORD, PROGRAMS, SERVERS, Server

pytestmark = pytest.mark.needs(*PROGRAMS.values())

_CLEAN = {"postgresql": signal.SIGINT, "mysql": signal.SIGTERM}
"""What each backend takes for: end all connections, and then yourself."""


@pytest.fixture(params=["postgresql", pytest.param("mysql", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with SERVERS[request.param]() as started:
        monkeypatch.setenv("METADATA_PASSWORD", PASSWORD)
        yield started


@pytest.mark.parametrize("killed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_run_survives_a_restart_of_the_database_server(server: Server, tmp_path: Path, killed: bool):
    # The third of four nodes waits at a pipe until the server has ended; its outputs are published after the restart.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "Actor.script").write_text(f"meet {pipe}")

    def restart() -> None:
        with pipe.open("w"):
            server.stop(signal.SIGKILL if killed else _CLEAN[server.backend])
        server.start()

    restarting = threading.Thread(target=restart, daemon=True)
    restarting.start()
    result = result_of_toy(start_toy(tmp_path, store=str(server.location)))
    assert (result["state"], result["error"]) == ("done", None)
    restarting.join()
    executions = Store(server.location).executions(result["run"])
    assert [execution.node for execution in executions] == ["Source", "Add", "Actor", "Rows"]
    assert {execution.state for execution in executions} == {"COMPLETE"}
    assert result["rows"] == {"train": 8, "eval": 4}


@pytest.mark.parametrize("killed", [True, False])
def test_open_connections_outlive_a_restart(server: Server, killed: bool):
    writer = Writer(server.location)
    writer.execution("r1", "Trainer")
    store = Store(server.location)
    before = store.executions("r1")
    for number in range(2):
        server.stop(signal.SIGKILL if killed else _CLEAN[server.backend])
        server.start()
        assert store.executions("r1") == before
        writer.execution(f"later{number}", "Trainer")
    assert [run.name for run in store.runs()] == ["later1", "later0", "r1"]


def test_missing_database_server_is_reported_at_once(server: Server):
    server.stop()
    with pytest.raises(MachineError, match="cannot be opened") as raised:
        check_store(server.location)
    assert "check that the server runs" in raised.value.remedy
