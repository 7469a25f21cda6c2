"""`start` goes from a table to a pushed model, and the commands that it prints next work as they are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.authoring.config import load
from tests.support.runs.command import Ended, command, versions

pytestmark = [pytest.mark.e2e, pytest.mark.extended]
ROWS = 600


def write_customers(path: Path) -> Path:
    """Write customers, of whom the older ones with the plan `flat` leave."""
    lines = ["customer,age,plan,churned"]
    for row in range(ROWS):
        age, plan = 18 + row * 37 % 70, ("flat", "basic", "other")[row % 3]
        lines.append(f"c{row:04d},{age},{plan},{int(age > 50 + 20 * (plan != 'flat'))}")
    path.write_text("\n".join(lines) + "\n")
    return path


def start_customers(folder: Path, *options: str) -> Ended:
    files = ["--config", str(folder / "my customers.yaml"), "--schema", str(folder / "customers.pbtxt")]
    fast = ["--keep", "age", "--budget", "0", "--set", "model={kind: linear}", "--set", "training.steps=300"]
    table = write_customers(folder / "customers.csv")
    return command("start", str(table), "--label", "churned", *files, "--output", str(folder / "out"), *fast, *options)


def next_commands(out: str) -> list[list[str]]:
    """Return the words of the commands that `start` printed at its end."""
    shown = out.partition("\nnext; ")[2]
    return [shlex.split(line)[2:] for line in re.findall(r"^  (python runner.py .*?)  +# ", shown, re.MULTILINE)]


def test_table_becomes_a_pushed_model_whose_next_commands_work(tmp_path: Path) -> None:
    started = start_customers(tmp_path)
    assert started.exit_code == 0, started.out + started.err
    assert load(str(tmp_path / "my customers.yaml")).config.data.label == "churned"
    assert "the model is blessed" in started.out
    report = re.search(r"^report: (.*)$", started.out, re.MULTILINE)
    assert report is not None
    assert Path(report[1]).exists()
    (folder,) = (tmp_path / "out").glob("*/pushed")
    assert len(versions(folder.parent)) == 1
    explain, predict, serve = next_commands(started.out)
    assert (explain[0], predict[0], serve[0]) == ("explain", "predict", "serve")
    explained = command(*explain)
    assert explained.exit_code == 0, explained.err
    assert re.search(r"^(age|plan) ", explained.out, re.MULTILINE)
    predictions = tmp_path / "predictions"
    places = {"NEW_ROWS.csv": str(tmp_path / "customers.csv"), "PREDICTIONS": str(predictions)}
    predicted = command(*(places.get(word, word) for word in predict))
    assert f"predicted {ROWS} of {ROWS} rows" in predicted.out, predicted.err

    again = start_customers(tmp_path)
    assert again.exit_code == 2
    assert "exists already" in again.err


@pytest.mark.slow
def test_commands_after_a_rejection_show_it_and_run_again(tmp_path: Path) -> None:
    rejected = start_customers(tmp_path, "--set", "evaluation.thresholds={auc: {min: 1.0}}")
    assert rejected.exit_code == 3, rejected.out + rejected.err
    show, run = next_commands(rejected.out)
    assert run[0] == "--local"
    assert "not blessed" in command(*show).out
