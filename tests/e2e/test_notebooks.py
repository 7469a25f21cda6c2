"""The notebooks run with a real kernel, in a folder outside of the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs.notebooks import execute

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("notebooks")]


def test_first_model(tmp_path: Path) -> None:
    outputs = execute("first_model", tmp_path)
    text = "\n".join(outputs)
    assert "('blessed'," in text
    assert "'auc': 0.9" in text
    assert "probability" in text
    assert "Report(path=" in text
    assert (tmp_path / "out" / "cancer" / "pushed").is_dir()


def test_compare_runs(tmp_path: Path) -> None:
    outputs = execute("compare_runs", tmp_path)
    assert "'training.steps'" in outputs[-2], outputs
    assert outputs[-1].count(": ") == 2
