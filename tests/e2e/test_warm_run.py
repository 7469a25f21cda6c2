"""A run with a warm start begins with the blessed model of an earlier run, here a user-defined network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs.command import Runs

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("own")]


def test_second_run_begins_with_the_blessed_model_of_the_first(built: Runs):
    assert (built.first.exit_code, built.first.result["verdict"]) == (0, "blessed"), built.first.out or built.first.err
    assert "BaseModel" not in built.first.states, "nobody asked for one"
    again = built.again("--to", "Trainer", "--set", "training.warm_start=true", "--set", "training.steps=20")
    assert again.exit_code == 0, again.out or again.err
    assert again.result["model"] != built.first.result["model"]
    assert again.nodes("done") >= {"BaseModel", "Trainer"}
    log = Path(again.result["nodes"]["Trainer"]["log"]).read_text()
    assert "2 of 2 variables copied: of_the_user/kernel, of_the_user/bias" in log
