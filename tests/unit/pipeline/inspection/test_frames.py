"""Tests for pandas data frames with one row per record, a column per dictionary key, and timestamps."""

from __future__ import annotations

import pandas as pd

from pipeline.core.metadata import Store
from pipeline.inspection import run_history
from pipeline.inspection.export import frame
from tests.support.runs.stored_history import History


def test_properties_of_artifacts_become_columns(history: History):
    store = Store(history.location)
    data_frame = frame(store.newest_artifacts("PushedModel"))
    assert data_frame["properties.pushed_version"].tolist() == ["12", "11"]
    assert data_frame["id"].tolist() == [history.number("pushed 2"), history.number("pushed 1")]
    assert str(data_frame["created"].dt.tz) == "UTC"
    seconds = [artifact.created for artifact in store.newest_artifacts("PushedModel")]
    assert data_frame["created"].tolist() == [pd.Timestamp(round(time * 1000), unit="ms", tz="UTC") for time in seconds]


def test_metrics_of_runs_become_columns(history: History):
    history.write_record("r3", state="done", started=100.0, updated=107.5, metrics={"auc": 0.5})
    runs = frame(run_history.list_runs(history.store, history.logs)).set_index("run")
    assert runs.loc["r3", "metrics.auc"] == 0.5
    assert runs.loc["r3", "started"] == pd.Timestamp("1970-01-01T00:01:40Z")
    assert runs["verdict"].tolist() == ["not blessed", "blessed", "blessed"]


def test_frame_without_rows_is_empty():
    assert frame([]).empty
