"""A whole pipeline with metadata on a database server: runs, cache and verbs work, and no file store is created."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import command
from tests.support.servers.databases import PASSWORD, SERVERS

pytestmark = pytest.mark.e2e


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
def test_whole_run_and_what_is_known_of_it(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    monkeypatch.setenv("METADATA_PASSWORD", PASSWORD)
    data = people.write(tmp_path / "people.csv", people.rows())
    with SERVERS[backend]() as server:
        location = server.location
        section = {"backend": backend, "host": location.host, "port": location.port, "database": location.name}
        section |= {"user": location.user, "password_env": "DATABASE_PASSWORD"}  # pragma: allowlist secret
        config = people.write_config(tmp_path / "people.yaml", data, metadata=section)
        shared = ("--config", str(config), "--output", str(tmp_path / "out"))

        def output_of(*arguments: str, expected: int = 0) -> str:
            ended = command(*arguments, *shared)
            assert ended.exit_code == expected, ended.err
            return ended.out

        assert "nothing has run yet" in command("runs", *shared).err
        before = json.loads(output_of("plan", "--json"))
        assert {node["will"] for node in before["nodes"]} == {"run"}

        run = json.loads(output_of("--local", "--json"))
        assert (run["state"], run["verdict"]) == ("done", "blessed")
        assert not (tmp_path / "out/people/metadata.db").exists()

        _look_back(output_of, run)
        again = json.loads(output_of("--local", "--json"))
        states = {name: node["state"] for name, node in again["nodes"].items()}
        assert {states[node] for node in ("ExampleGen", "Transform", "Trainer", "Pusher")} == {"cached"}
        # The verbs work in any folder, without the config.
        assert [run.name for run in Store(str(location)).runs()] == [again["run"], run["run"]]

        monkeypatch.setenv("DATABASE_PASSWORD", "wrong")
        refused = command("--local", *shared)
        assert refused.exit_code == 1
        assert "DATABASE_PASSWORD" in refused.err
        assert "wrong" not in refused.err + refused.out


def _look_back(output_of: Callable[..., str], run: dict[str, str]) -> None:
    after = json.loads(output_of("plan", "--json"))
    assert [node["id"] for node in after["nodes"] if node["will"] == "run"] == ["LatestBlessedModel"]
    assert run["run"] in output_of("runs")
    assert "Examples" in output_of("store", "lineage", run["pushed_version"])
    assert "all artifacts are needed" in output_of("store", "gc")
