"""A profile is requested from a training that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.trainer import profile_request
from tests.support.runs.command import light_command


def make_training(folder: Path) -> Path:
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "events.out.tfevents.1.host").touch()
    return folder


def test_newest_training_of_a_config_is_profiled(tmp_path: Path) -> None:
    runs = tmp_path / "taxi" / "artifacts" / "Trainer" / "model_run"
    make_training(runs / "9")
    newest = make_training(runs / "12")
    command = ("runs", "profile", "--config", "configs/taxi.yaml", "--output", str(tmp_path))
    ended = light_command(*command, "--steps", "7")
    assert (ended.exit_code, ended.out) == (0, f"requested a profile of 7 steps in {newest}\n")
    assert json.loads((newest / "profile_request.json").read_text()) == {"steps": 7}
    assert profile_request.take(str(newest)) == 7
    assert profile_request.take(str(newest)) is None
    (newest / "input_wait.json").touch()
    assert "expected a running training, received one that has ended" in light_command(*command).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "configs/taxi.yaml", "--output", "{}"], "model_run/*: expected a training, received none"),
        (["--folder", "{}"], "expected a training with TensorBoard's files"),
        (["--folder", "{}", "--steps", "0"], "expected a positive number, received '0'"),
    ],
)
def test_request_without_a_training_is_an_error(tmp_path: Path, arguments: list[str], message: str) -> None:
    ended = light_command("runs", "profile", *(argument.format(tmp_path) for argument in arguments))
    assert ended.exit_code == 2
    assert message in ended.err
