"""A running training is profiled on request, for the requested number of steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.trainer import profile_request, tensorboard_writer
from components.trainer.config import TensorBoardConfig
from components.trainer.tensorboard_writer import TensorBoardWriter


class Profiler:
    """Records the steps at which the profiler is started and stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step, self.calls = 0, list[tuple[str, int]]()
        monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: self.calls.append(("start", self.step)))
        monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: self.calls.append(("stop", self.step)))
        monkeypatch.setattr(tensorboard_writer, "_LOOK_SECONDS", 0)

    def train(self, writer: TensorBoardWriter, until: int) -> None:
        while self.step < until:
            writer.profile(self.step)
            self.step += 10


def test_request_profiles_the_next_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    with TensorBoardWriter(str(tmp_path), "train", TensorBoardConfig()) as writer:
        profiler.train(writer, 50)
        assert profiler.calls == []
        profile_request.write(str(tmp_path), 20)
        profiler.train(writer, 100)
        profile_request.write(str(tmp_path), 1)
        profiler.train(writer, 200)
        profile_request.write(str(tmp_path), 1000)
        profiler.train(writer, 230)
    assert profiler.calls[:4] == [("start", 50), ("stop", 70), ("start", 100), ("stop", 110)]
    assert [call for call, _ in profiler.calls[4:]] == ["start", "stop"], "the end of the training ends the profile"
    assert profile_request.take(str(tmp_path)) is None


def test_window_of_the_config_comes_before_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    profile_request.write(str(tmp_path), 30)
    with TensorBoardWriter(str(tmp_path), "train", TensorBoardConfig(profile=(20, 40))) as writer:
        profiler.train(writer, 200)
    assert profiler.calls == [("start", 20), ("stop", 40), ("start", 40), ("stop", 70)]


def test_request_of_another_form_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "profile_request.json").write_text("{}")
    with pytest.raises(InputError, match=r"profile_request.json: expected the number of steps, received b'{}'"):
        profile_request.take(str(tmp_path))
