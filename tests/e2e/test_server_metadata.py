"""A whole pipeline whose metadata is on a database server: runs, cache, what the verbs tell, and no file of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import people
import pytest
from command import command
from databases import PASSWORD, SERVERS

from pipeline.core.metadata.store import Store

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("backend", ["postgresql", pytest.param("mysql", marks=pytest.mark.slow)])
def test_a_whole_run_and_what_is_known_of_it(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    monkeypatch.setenv("METADATA_PASSWORD", PASSWORD)
    data = people.write(tmp_path / "people.csv", people.rows())
    with SERVERS[backend]() as server:
        place = server.place
        section = {"backend": backend, "host": place.host, "port": place.port, "database": place.name}
        section |= {"user": place.user, "password_env": "DATABASE_PASSWORD"}  # pragma: allowlist secret
        config = people.write_config(tmp_path / "people.yaml", data, metadata=section)
        shared = ("--config", str(config), "--output", str(tmp_path / "out"))

        def told(*arguments: str, expected: int = 0) -> str:
            ended = command(*arguments, *shared)
            assert ended.exit_code == expected, ended.err
            return ended.out

        assert "nothing has run yet" in command("runs", *shared).err
        before = json.loads(told("plan", "--json"))
        assert {node["will"] for node in before["nodes"]} == {"run"}

        run = json.loads(told("--local", "--json"))
        assert (run["state"], run["verdict"]) == ("done", "blessed")
        assert not (tmp_path / "out/people/metadata.db").exists()

        _look_back(told, run)
        again = json.loads(told("--local", "--json"))
        states = {name: node["state"] for name, node in again["nodes"].items()}
        assert {states[node] for node in ("ExampleGen", "Transform", "Trainer", "Pusher")} == {"cached"}
        # From anywhere, without the config.
        assert [each.name for each in Store(str(place)).runs()] == [again["run"], run["run"]]

        monkeypatch.setenv("DATABASE_PASSWORD", "wrong")
        refused = command("--local", *shared)
        assert refused.exit_code == 1
        assert "DATABASE_PASSWORD" in refused.err
        assert "wrong" not in refused.err + refused.out


def _look_back(told: Callable[..., str], run: dict[str, str]) -> None:
    after = json.loads(told("plan", "--json"))
    assert [node["id"] for node in after["nodes"] if node["will"] == "run"] == ["LatestBlessedModel"]
    assert run["run"] in told("runs")
    assert "Examples" in told("lineage", run["pushed_version"])
    assert "all artifacts are needed" in told("gc")
