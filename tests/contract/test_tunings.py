"""Every search tries different values, records all trials, and returns the trial with the lowest loss."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from components.base import errors
from components.base.errors import InputError, MachineError
from tests.support.runs import tuner_runs
from tests.support.runs.trainer_runs import Prepared
from tests.support.servers.in_fork_server import in_child

TRAINING = {"steps": 60, "batch_size": 256, "learning_rate": 0.01}
RATES = [1e-6, 0.02, 1e30]
"""Nothing is learned with the first, and the loss becomes NaN with the last."""


def search(
    prepared: Prepared, folder: Path, tune: dict[str, Any], stop_at: int = 0, training: dict[str, Any] = TRAINING
) -> Any:
    return in_child(folder / "node.log", tuner_runs.tune, prepared, folder, training, tune, stop_at)


@pytest.mark.both_lines
@pytest.mark.extended
def test_best_values_are_returned_and_failed_trials_are_recorded(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": RATES}, "hidden": {"choice": [[8]]}, "trials": 10}
    trials, results, best = search(prepared, tmp_path, tune)
    assert best == {"learning_rate": 0.02, "hidden": "[8]"}
    assert [trial["values"]["learning_rate"] for trial in trials] == [0.02, 1e-6, 1e30], "the best first"
    assert [trial["state"] for trial in trials] == ["completed", "completed", "failed"], "each once, and then no more"
    assert trials[0]["loss"] < 0.4 < 0.55 < trials[1]["loss"]
    assert trials[2]["loss"] is None
    assert "expected a finite loss" in trials[2]["why"]
    assert all(trial["seconds"] > 0 and trial["values"]["hidden"] == [8] for trial in trials)
    assert [(trial["learning_rate"], trial["score"]) for trial in results] == [
        (trial["values"]["learning_rate"], trial["loss"]) for trial in trials[:2]
    ]
    log = (tmp_path / "node.log").read_text()
    assert re.search(r"trial \d\d has failed: .*expected a finite loss", log)
    assert "whatever training.strategy is" in log
    assert "best values after 3 trials: learning_rate 0.02, hidden [8]" in log


@pytest.mark.slow
@pytest.mark.extended
def test_every_field_is_tuned_and_the_seed_makes_it_reproducible(prepared: Prepared, tmp_path: Path) -> None:
    tune = {
        "learning_rate": {"log": [1e-3, 1e-1]},
        "dropout": {"linear": [0, 0.5]},
        "batch_size": {"choice": [128, 512]},
        "hidden": {"choice": [[4], [8, 4]]},
        "embedding": {"int": [2, 6]},
        "kind": {"choice": ["mlp", "wide_deep", "dlrm"]},
        "weight_decay": {"linear": [0, 0.1]},
        "steps": {"int": [5, 10]},
        "search": "bayesian",
        "trials": 3,
        "parallel": 1,
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
        assert 5 <= values["steps"] <= 10
    assert len({trial["values"]["learning_rate"] for trial in trials}) == 3
    again, _, _ = search(prepared, tmp_path / "two", tune)
    expected = [(trial["values"], trial["loss"]) for trial in trials]
    assert [(trial["values"], pytest.approx(trial["loss"], rel=1e-3, abs=1e-4)) for trial in again] == expected


@pytest.mark.slow
def test_number_of_trials_at_a_time_changes_nothing_and_each_kind_has_its_fields(
    prepared: Prepared, tmp_path: Path
) -> None:
    tune = {
        "kind": {"choice": ["linear", "gbt", "ensemble"]},
        "learning_rate": {"log": [1e-3, 1e-1]},
        "members": {"int": [2, 3]},
        "depth": {"int": [2, 3]},
        "trees": {"choice": [5]},
        "shrinkage": {"linear": [0.05, 0.3]},
        "trials": 4,
        "steps": 5,
    }
    (trials, _, best), (second_trials, _, others_best) = (
        search(prepared, tmp_path / str(parallel), tune | {"parallel": parallel}) for parallel in (1, 2)
    )
    assert "4 trials, 2 at a time" in (tmp_path / "2" / "node.log").read_text()
    assert best == others_best
    assert [(trial["trial"], trial["values"]) for trial in trials] == [
        (trial["trial"], trial["values"]) for trial in second_trials
    ]
    assert [trial["loss"] for trial in trials] == pytest.approx(
        [trial["loss"] for trial in second_trials], rel=1e-4, abs=1e-5
    )
    fields = {
        "linear": {"kind", "learning_rate"},
        "gbt": {"kind", "trees", "depth", "shrinkage"},
        "ensemble": {"kind", "learning_rate", "members", "trees", "depth", "shrinkage"},
    }
    for trial in trials:
        assert trial["state"] == "completed", trial
        assert set(trial["values"]) == fields[trial["values"]["kind"]]
    assert len({trial["values"]["kind"] for trial in trials}) > 1


@pytest.mark.extended
def test_killed_trial_is_started_again_and_then_recorded(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [0.01, 0.02, 0.03]}, "trials": 3, "steps": 10}
    log = tmp_path / "node.log"
    trials, _, _ = in_child(log, tuner_runs.tune_with_kills, prepared, tmp_path, TRAINING, tune, 0.02, 0.03)
    assert {trial["values"]["learning_rate"]: trial["state"] for trial in trials} == {
        0.01: "completed",
        0.02: "failed",
        0.03: "completed",
    }
    assert trials[-1]["why"] == (
        "its process was killed by SIGKILL (the kernel does this when memory runs out), 2 times"
    )
    assert log.read_text().count("it is started again") == 2


@pytest.mark.slow
def test_interrupted_search_continues(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [0.003, 0.01, 0.03, 0.1]}, "trials": 4, "steps": 10, "parallel": 2}
    log = tmp_path / "node.log"
    with pytest.raises(MachineError, match="tuning was stopped by SIGTERM"):
        search(prepared, tmp_path, tune, stop_at=3)
    ended = log.read_text().count("on the validation part, the best")
    assert ended in (1, 2)
    processes = re.findall(r"runs in process (\d+)", log.read_text())
    assert len(processes) == 3
    assert not any(Path("/proc", process).exists() for process in processes)
    trials, _, _ = search(prepared, tmp_path, tune)
    assert log.read_text().count("on the validation part, the best") == 4, "the log goes on"
    assert sorted(trial["values"]["learning_rate"] for trial in trials) == [0.003, 0.01, 0.03, 0.1]
    assert all(trial["seconds"] > 0 for trial in trials)


HALVING = {
    "learning_rate": {"choice": [1e-6, 1e-5, 1e-4, 0.003, 0.01, 0.03, 1e30]},
    "trials": 7,
    "halving": {"min_steps": 10},
    "parallel": 1,
}
"""Rungs after 10, 30 and 90 steps."""
HALVED = {"steps": 90, "batch_size": 256}


def rungs(trials: list[dict[str, Any]]) -> dict[float, list[list[float]]]:
    return {trial["values"]["learning_rate"]: trial["rungs"] for trial in trials}


@pytest.mark.slow
def test_best_trials_continue_from_their_checkpoints(prepared: Prepared, tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    trials, results, best = in_child(log, tuner_runs.tune, prepared, tmp_path, HALVED, HALVING)
    by_rate = rungs(trials)
    # With one trial at a time, the rule of the paper can be applied by hand: the first of three trials continues, and
    # of all seven, two.
    finished = {rate for rate, losses in by_rate.items() if len(losses) == 3}
    assert len(finished) == 1
    assert 2 <= sum(len(losses) > 1 for losses in by_rate.values()) <= 4
    assert finished == {best["learning_rate"]} == {trials[0]["values"]["learning_rate"]}
    assert best["learning_rate"] >= 0.01
    assert [step for step, _ in by_rate[best["learning_rate"]]] == [10, 30, 90]
    assert [trial["state"] for trial in trials] == ["completed", *["stopped"] * 5, "failed"]
    assert trials[-1]["values"]["learning_rate"] == 1e30
    assert [result["score"] for result in results] == [trials[0]["loss"]]
    for trial in trials[:-1]:
        curve = dict(trial["curve"])
        assert list(curve) == list(range(10, trial["steps"] + 1, 10)), "measured at multiples of the first rung"
        assert all(curve[step] == loss for step, loss in trial["rungs"])
        assert trial["loss"] == trial["rungs"][-1][1]
        started = log.read_text().count(f"trial {trial['trial']} runs in process")
        assert started == len(trial["rungs"]), "each rung is trained once"
    whole = {"learning_rate": {"choice": [best["learning_rate"]]}, "trials": 1}
    [alone], _, _ = search(prepared, tmp_path / "alone", whole, training=HALVED)
    assert trials[0]["loss"] == pytest.approx(alone["loss"], rel=1e-4, abs=1e-5), "as without pauses"
    assert not list((tmp_path / "work").glob("**/*.index")), "checkpoints are removed"


@pytest.mark.slow
def test_killed_search_continues_to_the_same_result(prepared: Prepared, tmp_path: Path) -> None:
    expected, _, expected_best = in_child(
        tmp_path / "whole.log", tuner_runs.tune, prepared, tmp_path / "whole", HALVED, HALVING
    )
    folder, log = tmp_path / "killed", tmp_path / "node.log"
    # The node is killed after the values of a trial were written, while a trial trains, and before a write.
    for event, number in (("saved", 3), ("step", 8), ("saving", 3)):
        (folder / "events").unlink(missing_ok=True)
        with pytest.raises(MachineError, match="SIGKILL"):
            in_child(log, tuner_runs.tune_and_die, prepared, folder, HALVED, HALVING, event, number)
    trials, _, best = in_child(log, tuner_runs.tune, prepared, folder, HALVED, HALVING)
    assert best == expected_best
    assert [(trial["trial"], trial["state"], trial["values"]) for trial in trials] == [
        (trial["trial"], trial["state"], trial["values"]) for trial in expected
    ]
    for trial, other in zip(trials, expected, strict=True):
        for name in ("rungs", "curve"):
            assert [step for step, _ in trial[name]] == [step for step, _ in other[name]]
            assert [loss for _, loss in trial[name]] == pytest.approx(
                [loss for _, loss in other[name]], rel=1e-4, abs=1e-5
            )
    ended = re.findall(r"root: trial (\d) after (\d+) steps: loss", log.read_text())
    assert len(set(ended)) == len(ended) == sum(len(trial["rungs"]) for trial in trials[:-1]), "no rung is repeated"


@pytest.mark.slow
def test_trials_that_run_as_jobs_have_the_same_losses(prepared: Prepared, tmp_path: Path) -> None:
    tune = {
        "learning_rate": {"choice": [1e-6, 0.02, 1e30]},
        "trials": 3,
        "halving": {"min_steps": 30},
    }
    log, folder = tmp_path / "node.log", tmp_path / "jobs"
    trials, _, best = in_child(log, tuner_runs.tune_in_jobs, prepared, folder, HALVED, tune)
    assert "up to 3 trials, 3 at a time, each as a job of training.where with one task" in log.read_text()
    local_trials, _, local_best = search(prepared, tmp_path / "local", tune, training=HALVED)
    assert best == local_best == {"learning_rate": 0.02}
    assert [trial["state"] for trial in trials] == ["completed", "stopped", "failed"]
    assert "expected a finite loss" in trials[-1]["why"]
    expected = {trial["trial"]: trial["curve"] for trial in local_trials}
    for trial in trials:
        assert [step for step, _ in trial["curve"]] == [step for step, _ in expected[trial["trial"]]]
        assert [loss for _, loss in trial["curve"]] == pytest.approx(
            [loss for _, loss in expected[trial["trial"]]], rel=1e-4, abs=1e-5
        )
    manifests = [json.loads(file.read_text()) for file in (folder / "manifests").iterdir()]
    assert len(manifests) == 4, "the rungs of a trial are jobs of different names"
    for manifest in manifests:
        assert manifest["spec"]["failurePolicy"]["maxRestarts"] == 2
        assert manifest["metadata"]["name"].startswith("train-model-")
    assert len(list((folder / "work").glob("*/logs/*/worker-0.log"))) == 3


@pytest.mark.extended
def test_trials_that_all_fail_end_the_run(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [1e30, 1e31]}, "trials": 2}
    with pytest.raises(InputError, match=r"tune: all 2 trials have failed; the last: .*finite loss") as raised:
        search(prepared, tmp_path, tune)
    assert "learning_rate" in raised.value.remedy


@pytest.mark.extended
def test_failure_that_every_trial_would_have_ends_the_search(prepared: Prepared, tmp_path: Path) -> None:
    tune = {"learning_rate": {"choice": [0.1, 0.2]}, "parallel": 1}
    log = tmp_path / "node.log"
    error = in_child(log, tuner_runs.without_a_disk, prepared, tmp_path, TRAINING, tune)
    assert (str(error), error.exit_code) == (str(errors.disk_full(None)), 1)
    assert log.read_text().count("begins") == 1
