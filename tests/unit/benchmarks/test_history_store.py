"""Tests that the cost of queries depends on the size of their results, and not on the length of the history.

The cost is counted in steps of SQLite's virtual machine, which are reproducible, unlike seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import history_store
from pipeline.core.metadata.store import Store
from pipeline.inspection import lineage, run_history
from pipeline.inspection.cache_reasons import why_not_cached

_AT_ONCE = 10
"""Number of virtual machine steps between two calls of the progress handler."""
QUERIES: dict[str, Callable[[Store], object]] = {
    "runs": lambda store: list(run_history.list_runs(store, Path("none"), newest=10)),
    "show": lambda store: run_history.describe_run(store, Path("none"), store.runs(newest=1)[0]),
    "runs_like": lambda store: store.runs_like("run-00002"),
    "lineage": lambda store: lineage.trace(store, lineage.find(store, "version:20")),
    "why-not-cached": lambda store: why_not_cached(store, store.runs(newest=1)[0], "Trainer"),
    "artifacts": lambda store: store.makers(artifact.id for artifact in store.newest_artifacts(newest=10)),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a store with 40 runs and a store with 400 runs, and return their paths."""
    folder = tmp_path_factory.mktemp("history")
    paths = folder / "short.db", folder / "long.db"
    for path, runs in zip(paths, (40, 400), strict=True):
        history_store.write(path, runs)
    return paths


class CountingConnection(sqlite3.Connection):
    """A connection that counts the steps of SQLite's virtual machine, in units of _AT_ONCE."""

    steps = 0

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.set_progress_handler(self._count, _AT_ONCE)

    def _count(self) -> int:
        CountingConnection.steps += 1
        return 0


@pytest.mark.parametrize("name", QUERIES)
def test_queries_cost_the_same_with_ten_times_the_runs(
    name: str, stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *arguments, **options: connect(*arguments, factory=CountingConnection, **options)
    )
    costs = []
    for path in stores:
        monkeypatch.setattr(CountingConnection, "steps", 0)
        assert QUERIES[name](Store(path))
        costs.append(CountingConnection.steps)
    assert costs[0] > 0
    # An index over ten times the rows is at most one level deeper.
    assert costs[1] <= 1.3 * costs[0] + 10, costs


def test_generated_history_can_be_read_by_ml_metadata(stores: tuple[Path, Path]):
    """TFX reads contexts, events and properties in the same way."""
    import ml_metadata as mlmd

    from pipeline.core.metadata.connection import make_connection_config

    store = mlmd.MetadataStore(make_connection_config(stores[0]))
    run = store.get_context_by_type_and_name("pipeline_run", "run-000007")
    assert len(store.get_executions_by_context(run.id)) == len(history_store.NODES)
    artifacts = store.get_artifacts_by_context(run.id)
    assert len(artifacts) == 20
    [pushed] = [artifact for artifact in artifacts if artifact.type == "PushedModel"]
    assert pushed.custom_properties["pushed_version"].string_value == "8"
