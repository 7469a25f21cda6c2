"""Every search tries different values, records each trial, and returns the one with the lowest loss."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tuner_runs
from in_fork_server import in_child
from trainer_runs import Prepared

from components import errors
from components.errors import InputError, MachineError

TRAINING = {"steps": 60, "batch_size": 256, "learning_rate": 0.01}
RATES = [1e-6, 0.02, 1e30]
"""Nothing is learned with the first, and the loss becomes NaN with the last."""


def search(prepared: Prepared, folder: Path, tune: dict[str, Any], stop_at: int = 0) -> Any:
    return in_child(folder / "node.log", tuner_runs.tune, prepared, folder, TRAINING, tune, stop_at)


@pytest.mark.both_lines
def test_best_values_are_returned_and_failed_trials_are_recorded(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": RATES}, "hidden": {"choice": [[8]]}, "trials": 10}
    trials, results, best = search(prepared, tmp_path, tune)
    assert best == {"learning_rate": 0.02, "hidden": "[8]"}
    assert [trial["values"]["learning_rate"] for trial in trials] == [0.02, 1e-6, 1e30], "the best first"
    assert [trial["state"] for trial in trials] == ["completed", "completed", "failed"], "each once, and then no more"
    assert trials[0]["loss"] < 0.4 < 0.6 < trials[1]["loss"]
    assert trials[2]["loss"] is None
    assert "expected a finite loss" in trials[2]["why"]
    assert all(trial["seconds"] > 0 and trial["values"]["hidden"] == [8] for trial in trials)
    assert [(each["learning_rate"], each["score"]) for each in results] == [
        (trial["values"]["learning_rate"], trial["loss"]) for trial in trials[:2]
    ]
    log = (tmp_path / "node.log").read_text()
    assert re.search(r"trial \d\d has failed: .*expected a finite loss", log)
    assert "each in this process alone" in log
    assert "best values after 3 trials: learning_rate 0.02, hidden [8]" in log


def test_every_field_is_tuned_and_the_seed_makes_it_reproducible(prepared: Prepared, tmp_path: Path) -> None:
    tune = {
        "learning_rate": {"log": [1e-3, 1e-1]},
        "dropout": {"linear": [0, 0.5]},
        "batch_size": {"choice": [128, 512]},
        "hidden": {"choice": [[4], [8, 4]]},
        "embedding": {"int": [2, 6]},
        "kind": {"choice": ["mlp", "wide_deep", "dlrm"]},
        "search": "bayesian",
        "trials": 3,
        "steps": 10,
    }
    trials, _, _ = search(prepared, tmp_path / "one", tune)
    assert len(trials) == 3
    assert [trial["state"] for trial in trials] == ["completed"] * 3
    for trial in trials:
        values = trial["values"]
        assert 1e-3 <= values["learning_rate"] <= 1e-1
        assert 0 <= values["dropout"] <= 0.5
        assert values["batch_size"] in (128, 512)
        assert values["hidden"] in ([4], [8, 4])
        assert 2 <= values["embedding"] <= 6
        assert values["kind"] in ("mlp", "wide_deep", "dlrm")
    assert len({trial["values"]["learning_rate"] for trial in trials}) == 3
    again, _, _ = search(prepared, tmp_path / "two", tune)
    expected = [(trial["values"], trial["loss"]) for trial in trials]
    assert [(trial["values"], pytest.approx(trial["loss"], rel=1e-3)) for trial in again] == expected


def test_interrupted_search_continues(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [0.003, 0.01, 0.03]}, "trials": 3, "steps": 10}
    with pytest.raises(MachineError, match="tuning was stopped by SIGTERM"):
        search(prepared, tmp_path, tune, stop_at=3)
    assert (tmp_path / "node.log").read_text().count("on the validation part, the best") == 2
    trials, _, _ = search(prepared, tmp_path, tune)
    assert (tmp_path / "node.log").read_text().count("on the validation part, the best") == 3, "the log goes on"
    assert sorted(trial["values"]["learning_rate"] for trial in trials) == [0.003, 0.01, 0.03]
    assert all(trial["seconds"] > 0 for trial in trials)


def test_trials_that_all_fail_end_the_run(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [1e30, 1e31, 1e32, 1e33]}, "trials": 4}
    with pytest.raises(InputError, match=r"tune: all 4 trials have failed; the last: .*finite loss") as raised:
        search(prepared, tmp_path, tune)
    assert "learning_rate" in raised.value.remedy


def test_failure_that_every_trial_would_have_ends_the_search(prepared: Prepared, tmp_path: Path) -> None:
    error, begun = in_child(
        tmp_path / "node.log",
        tuner_runs.without_a_disk,
        prepared,
        tmp_path,
        TRAINING,
        {"learning_rate": {"choice": [0.1, 0.2]}},
    )
    assert (str(error), error.exit_code, begun) == (str(errors.disk_full(None)), 1, 1)
