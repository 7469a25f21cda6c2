"""Tests that a user's run_fn that returns without writing a model is reported as an error of that code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.base.errors import InputError
from components.trainer import run_fn
from components.trainer.cluster.tf_config import VARIABLE


@pytest.mark.parametrize("task", [None, ("chief", 0), ("worker", 0)])
def test_run_fn_without_a_model_is_reported_by_the_task_that_writes_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: tuple[str, int] | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if task is not None:
        cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
        monkeypatch.setenv(VARIABLE, json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}}))
    if task == ("worker", 0):
        run_fn._check_model("mine.run_fn", str(tmp_path))
        return
    # The folder exists and is empty, which does not count as a model.
    with pytest.raises(InputError, match=r"mine\.run_fn: expected a SavedModel .*, received none") as raised:
        run_fn._check_model("mine.run_fn", str(tmp_path))
    assert raised.value.exit_code == 2
    (tmp_path / "saved_model.pb").touch()
    run_fn._check_model("mine.run_fn", str(tmp_path))
