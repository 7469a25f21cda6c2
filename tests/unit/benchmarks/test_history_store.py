"""What is asked of a long history costs as much as the answer is long: counted in steps of SQLite, not in seconds."""

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
"""Steps between two looks of the counter."""
ASKED: dict[str, Callable[[Store], object]] = {
    "runs": lambda store: list(run_history.list_runs(store, Path("none"), newest=10)),
    "show": lambda store: run_history.describe_run(store, Path("none"), store.runs(newest=1)[0]),
    "runs_like": lambda store: store.runs_like("run-00002"),
    "lineage": lambda store: lineage.trace(store, lineage.find(store, "version:20")),
    "why-not-cached": lambda store: why_not_cached(store, store.runs(newest=1)[0], "Trainer"),
    "artifacts": lambda store: store.makers(each.id for each in store.newest_artifacts(newest=10)),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One of 40 runs, and one of 400."""
    folder = tmp_path_factory.mktemp("history")
    made = folder / "short.db", folder / "long.db"
    for path, runs in zip(made, (40, 400), strict=True):
        history_store.write(path, runs)
    return made


class Counted(sqlite3.Connection):
    """A connection that counts the steps of SQLite's own machine."""

    steps = 0

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.set_progress_handler(self._count, _AT_ONCE)

    def _count(self) -> int:
        Counted.steps += 1
        return 0


@pytest.mark.parametrize("name", ASKED)
def test_ten_times_the_runs_cost_no_more(name: str, stores: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, factory=Counted, **more))
    costs = []
    for path in stores:
        monkeypatch.setattr(Counted, "steps", 0)
        assert ASKED[name](Store(path))
        costs.append(Counted.steps)
    assert costs[0] > 0
    # An index over ten times as much is a level deeper at most.
    assert costs[1] <= 1.3 * costs[0] + 10, costs


def test_made_history_is_one_that_the_library_reads(stores: tuple[Path, Path]):
    """As TFX would: by contexts, events and properties."""
    import ml_metadata as mlmd

    from pipeline.core.metadata.connection import make_connection_config

    store = mlmd.MetadataStore(make_connection_config(stores[0]))
    run = store.get_context_by_type_and_name("pipeline_run", "run-000007")
    assert len(store.get_executions_by_context(run.id)) == len(history_store.NODES)
    artifacts = store.get_artifacts_by_context(run.id)
    assert len(artifacts) == 20
    [pushed] = [each for each in artifacts if each.type == "PushedModel"]
    assert pushed.custom_properties["pushed_version"].string_value == "8"
