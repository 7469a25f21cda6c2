"""A run with a Tuner: the Trainer uses the best values instead of the config's values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.runs.command import Runs

pytestmark = pytest.mark.e2e


@pytest.mark.slow
def test_trainer_takes_the_best_values(tuned: Runs) -> None:
    # With the config's learning rate the model would not learn anything.
    assert (tuned.first.exit_code, tuned.first.result["verdict"]) == (0, "blessed"), tuned.first.out or tuned.first.err
    assert tuned.first.result["metrics"]["auc"] > 0.8
    assert tuned.first.result["tuned"] == {"learning_rate": 0.02, "hidden": [8]}
    [trials] = (tuned.output / "artifacts" / "Tuner" / "tuner_results").glob("*/trials.json")
    record = json.loads(trials.read_text())
    assert [trial["values"] for trial in record] == [
        {"learning_rate": 0.02, "hidden": [8]},
        {"learning_rate": 1e-9, "hidden": [8]},
    ]
    log = Path(tuned.first.result["nodes"]["Trainer"]["log"]).read_text()
    assert "the Tuner's best values are used" in log
    report = Path(tuned.first.result["report"]).read_text()
    assert "loss by learning_rate" in report
    assert "All trials, the best first" in report
    assert len(tuned.first.result["results"]["Tuner"]["trials"]) == 2


def test_second_run_takes_trials_and_training_from_the_cache(tuned: Runs) -> None:
    assert tuned.first.exit_code == 0, tuned.first.out or tuned.first.err
    again = tuned.again("--to", "Trainer")
    assert again.nodes("cached") >= {"Tuner", "Trainer"}
