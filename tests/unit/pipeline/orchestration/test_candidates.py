"""Tests for interrupts while candidates are fitted, which must not leave processes behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipeline.orchestration import candidates
from tests.support.data.small_config import load_small


class Interrupted:
    """A fake child process. The user presses Ctrl-C while it starts."""

    signalled: ClassVar[list[int]] = []

    def __init__(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def signal(self, signum: int) -> None:
        self.signalled.append(signum)

    def poll(self) -> bool:
        return True


def test_child_that_has_just_started_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "NodeProcess", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        candidates.fit({"linear": load_small(tmp_path).config}, tmp_path, 60, print)
    assert Interrupted.signalled == [signal.SIGKILL]
