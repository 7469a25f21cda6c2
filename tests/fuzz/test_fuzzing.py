"""Coverage-guided fuzzing of every target for a limited time; see fuzz.py."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.support.runs import fuzz_targets as targets
from tests.support.runs.command import call

_SECONDS = 40


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("atheris"), reason="atheris has no wheel for this Python")
@pytest.mark.parametrize("target", targets.TARGETS)
def test_nothing_but_documented_errors(target: str) -> None:
    ended = call([sys.executable, "tests/fuzz/fuzz.py", target, f"--seconds={_SECONDS}"])
    assert ended.exit_code == 0, ended.err[-3000:]
    assert "Done " in ended.err
