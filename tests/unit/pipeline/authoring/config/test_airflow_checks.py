"""Tests for the section `airflow`: what it refuses, and which files a run waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import Config, load

BY_DATE = {"start": "2026-01-01", "span": "date"}


DAYS = "{YYYY}-{MM}-{DD}/*.csv"


def load_section(folder: Path, path: str, schedule: dict[str, Any] | None = None, **section: Any) -> Config:
    """Load a config of one column with the section `airflow`."""
    content = {
        "pipeline": {"name": "small"},
        "data": {"path": path, "label": "tips"},
        "features": {"columns": {"fare": "z_score"}},
        "evaluation": {"thresholds": {"auc": {"min": 0.5}}},
        "airflow": section,
        **({"schedule": schedule} if schedule else {}),
    }
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(content))
    return load(str(file)).config


@pytest.mark.parametrize(
    ("section", "schedule", "message"),
    [
        ({"at_times": True}, BY_DATE, "at_times: expected assets in run_after, received none"),
        ({"at_times": True, "run_after": ["a"]}, None, "airflow.at_times: expected a section schedule, received none"),
        ({"run_after": ["a", "a"]}, None, "run_after: expected different assets, received 'a' twice"),
        ({"run_after": ["small/model"]}, None, "received 'small/model': each push would start the next run"),
        ({"run_after": ["a"], "asset": "a"}, None, "received 'a': each push would start the next run"),
        ({"asset": "modèle"}, None, "airflow.asset: expected a text that matches"),
        ({"tasks": {"Trianer": {"pool": "gpu"}}}, None, "no node 'Trianer'; did you mean 'Trainer'?"),
        ({"tasks": {"Trainer": {"pool_slots": 0}}}, None, "airflow.tasks.Trainer.pool_slots"),
        ({"on_failure": "alerts.py:send"}, None, "airflow.on_failure: expected an import path"),
        ({"wait_for_data": {}}, None, "wait_for_data: expected schedule.span: date, received no schedule"),
        ({"wait_for_data": {}}, {"start": "2026-01-01"}, "expected schedule.span: date, received newest"),
        ({"wait_for_data": {"file": "done"}}, BY_DATE, "expected {SPAN}, or {YYYY}, {MM} and {DD}, received 'done'"),
        ({"wait_for_data": {"file": "{YYYY}/done"}}, BY_DATE, "file: expected all of {YYYY}, {MM} and {DD}"),
        ({"wait_for_data": {"file": "gs://b/{SPAN}/done"}}, BY_DATE, "expected a file on a disk, received gs://b/{SPAN}"),
    ],
)  # fmt: skip
def test_invalid_section_is_rejected(
    tmp_path: Path, section: dict[str, Any], schedule: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(InputError) as raised:
        load_section(tmp_path, DAYS, schedule, **section)
    assert message in str(raised.value)


def test_every_path_needs_a_span_unless_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="received gs://bucket/"):
        load_section(tmp_path, f"gs://bucket/{DAYS}", BY_DATE, wait_for_data={})
    with pytest.raises(InputError, match=r"in every data\.path, received .*rows\.csv"):
        load_section(tmp_path, "rows.csv", {"start": "2026-01-01"}, wait_for_data={})


@pytest.mark.parametrize(
    ("section", "patterns"),
    [
        ({"wait_for_data": {}}, ["days/{SPAN:5}/*.csv"]),
        ({"wait_for_data": {"file": "/done/{SPAN}"}}, ["/done/{SPAN}"]),
        ({"run_after": ["other/model"]}, []),
    ],
)
def test_run_waits_for_its_data_or_for_the_file_that_is_written_last(
    tmp_path: Path, section: dict[str, Any], patterns: list[str]
) -> None:
    config = load_section(tmp_path, "days/{SPAN:5}/*.csv", BY_DATE, **section)
    assert config.airflow is not None
    assert config.airflow.get_waited_patterns(config) == [str(Path.cwd() / pattern) for pattern in patterns]
