"""Whole runs with `push.approval: required`: the run ends, a person approves, and later runs use the version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.data import people
from tests.support.runs.command import Runs, command

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]


def test_model_is_pushed_and_used_after_its_approval(small: Runs, tmp_path: Path):
    new = people.write_new(tmp_path / "new.csv")
    pushed = tmp_path / "pushed"
    predict = json.dumps({"path": str(new), "columns": ["id"]})
    fields = ("push.approval=required", f"push.directory={pushed}", f"predict={predict}")
    sets = [word for field in fields for word in ("--set", field)]
    waiting = small.again(*sets)
    result = waiting.result
    assert (waiting.exit_code, result["state"], result["verdict"]) == (0, "done", "blessed")
    assert (result["awaits_approval"], result["pushed"], result["approval"]) == (True, None, {})
    assert (waiting.states["Trainer"], waiting.states["Pusher"]) == ("cached", "done")
    assert not list(pushed.glob("*/saved_model.pb"))

    who = ("--by", "Ana Diaz", "--note", "looked at the slices")
    output = ("--output", str(small.output.parent))
    approved = command("models", "approve", result["run"], *who, *small.config, *sets, *output, "--json")
    assert approved.exit_code == 0, approved.err
    version = approved.result["version"]
    assert [int(path.parent.name) for path in pushed.glob("*/saved_model.pb")] == [version]
    report = Path(result["report"]).read_text()
    assert "Ana Diaz" in report
    assert "looked at the slices" in report

    # The next run takes the approved version from the cache, and predicts with it.
    after = small.again(*sets)
    assert (after.exit_code, after.states["Pusher"], after.states["Predictor"]) == (0, "cached", "done")
    summary = after.result
    assert (summary["pushed_version"], summary["awaits_approval"]) == (str(version), False)
    assert summary["approval"]["by"] == "Ana Diaz"
    folders = (small.output / "artifacts" / "Predictor" / "predictions").iterdir()
    manifest = json.loads((max(folders, key=lambda path: int(path.name)) / "_manifest.json").read_text())
    assert (manifest["predicted"], manifest["model"]["version"]) == (300, version)
