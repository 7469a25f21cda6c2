"""Records as pandas frames: a row each, what they hold by name spread, and times as times."""

from __future__ import annotations

import pandas as pd
from stored_history import History

from pipeline.core.metadata import Store
from pipeline.inspection import run_history
from pipeline.inspection.export import frame


def test_artifacts_with_their_properties(history: History):
    store = Store(history.location)
    found = frame(store.newest_artifacts("PushedModel"))
    assert found["properties.pushed_version"].tolist() == ["12", "11"]
    assert found["id"].tolist() == [history.number("pushed 2"), history.number("pushed 1")]
    assert str(found["created"].dt.tz) == "UTC"
    seconds = [each.created for each in store.newest_artifacts("PushedModel")]
    assert found["created"].tolist() == [pd.Timestamp(round(each * 1000), unit="ms", tz="UTC") for each in seconds]


def test_history_with_its_metrics(history: History):
    history.write_record("r3", state="done", started=100.0, updated=107.5, metrics={"auc": 0.5})
    runs = frame(run_history.list_runs(history.store, history.logs)).set_index("run")
    assert runs.loc["r3", "metrics.auc"] == 0.5
    assert runs.loc["r3", "started"] == pd.Timestamp("1970-01-01T00:01:40Z")
    assert runs["verdict"].tolist() == ["not blessed", "blessed", "blessed"]


def test_no_rows_give_an_empty_frame():
    assert frame([]).empty
