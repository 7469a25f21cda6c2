"""Tests of trials that run as jobs: what the failure of a job means for the search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tfx.components.trainer.fn_args_utils import FnArgs

from components.base.errors import InputError, MachineError
from components.trainer.plan import TrainingPlan
from components.trainer.remote import job_file
from components.trainer.remote.config import WhereConfig
from components.tuner import trial_job
from components.tuner.trial_process import Result, Task

PLAN = TrainingPlan.model_validate(
    {
        "features": {"features": {"columns": {"fare": "z_score"}}, "labels": [{"text": "tips > 1"}], "task": "binary"},
        "model": {"kind": "mlp"},
        "training": {"steps": 90},
    }
)
WHERE = WhereConfig(kind="jobset", image="registry.example/taxi:1")
FILES = FnArgs(train_files=["/rows/train/*"], eval_files=["/rows/eval/*"], transform_graph_path="/graph")


def follow(patch: pytest.MonkeyPatch, folder: Path, train: Any) -> Result:
    patch.setattr(trial_job, "train", train)
    task = Task("07", PLAN, str(folder), pause_at=30)
    return trial_job.follow_job(task, FILES, WHERE, "taxi", str(folder / "logs"), str(folder / "scratch"))


def test_job_trains_up_to_the_rung_and_its_result_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def train(training: Any, where: Any, pipeline: str, text: str, folder: str, logs: Path) -> int:
        calls.append((training, where, pipeline, folder, logs))
        function, arguments = job_file.read_call(text) or ("", {})
        assert function == "components.tuner.trial_job:train_trial"
        assert TrainingPlan.model_validate_json(arguments["plan"]) == PLAN
        assert (arguments["pause_at"], arguments["folder"]) == (30, str(tmp_path))
        assert (arguments["train_files"], arguments["transform_graph"]) == (["/rows/train/*"], "/graph")
        Path(folder).mkdir()
        Path(arguments["result"]).write_text(json.dumps({"loss": 0.5, "curve": [[10, 0.6], [30, 0.5]], "why": ""}))
        return 0

    result = follow(monkeypatch, tmp_path, train)
    assert (result.loss, [tuple(point) for point in result.curve], result.error) == (0.5, [(10, 0.6), (30, 0.5)], None)
    assert calls == [(PLAN.training, WHERE, "taxi", f"{tmp_path}/30", tmp_path / "logs" / "07")]


def test_lost_job_fails_its_trial_and_a_refused_job_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(error: Exception) -> Any:
        def train(*_: Any) -> int:
            raise error

        return train

    lost = follow(monkeypatch, tmp_path, fail(MachineError("job train-taxi: worker-0 has failed", "see its log")))
    assert (lost.why, lost.error) == ("job train-taxi: worker-0 has failed", None)
    refused = follow(monkeypatch, tmp_path, fail(InputError("Kubernetes refuses to create jobsets", "grant it")))
    assert isinstance(refused.error, InputError)
