"""Tests for the paths of a pipeline: local paths become absolute, and URLs are not changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.authoring.config import load


@pytest.mark.parametrize(
    ("push", "pushed"),
    [
        ("null", "{cwd}/elsewhere/taxi/pushed"),
        ("models", "{cwd}/models"),
        ("gs://bucket/models/taxi", "gs://bucket/models/taxi"),
    ],
)
def test_paths_are_absolute_and_below_the_output_folder(push: str, pushed: str) -> None:
    config = load("configs/taxi.yaml", ["runtime.output=elsewhere", f"push.directory={push}"]).config
    paths = config.paths()
    root = Path.cwd() / "elsewhere" / "taxi"
    assert (paths.root, paths.store, paths.artifacts) == (root, root / "metadata.db", str(root / "artifacts"))
    assert paths.pushed == pushed.format(cwd=Path.cwd())


@pytest.mark.parametrize(
    ("configured", "artifacts"), [("artifacts", "{cwd}/artifacts"), ("gs://bucket/taxi", "gs://bucket/taxi")]
)
def test_artifacts_may_be_in_another_folder(configured: str, artifacts: str) -> None:
    paths = load("configs/taxi.yaml", [f"runtime.artifacts={configured}"]).config.paths()
    assert paths.artifacts == artifacts.format(cwd=Path.cwd())
    assert paths.store == Path.cwd() / "out" / "taxi" / "metadata.db"
