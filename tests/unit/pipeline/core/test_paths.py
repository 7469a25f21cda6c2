"""Where everything lies: below the output folder, absolute, and a remote push folder left as it is written."""

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
def test_everything_has_its_place(push: str, pushed: str) -> None:
    config = load("configs/taxi.yaml", ["runtime.output=elsewhere", f"push.directory={push}"]).config
    paths = config.paths()
    root = Path.cwd() / "elsewhere" / "taxi"
    assert (paths.root, paths.store, paths.artifacts) == (root, root / "metadata.db", str(root / "artifacts"))
    assert paths.pushed == pushed.format(cwd=Path.cwd())


@pytest.mark.parametrize(
    ("given", "artifacts"), [("artifacts", "{cwd}/artifacts"), ("gs://bucket/taxi", "gs://bucket/taxi")]
)
def test_artifacts_may_lie_elsewhere(given: str, artifacts: str) -> None:
    paths = load("configs/taxi.yaml", [f"runtime.artifacts={given}"]).config.paths()
    assert paths.artifacts == artifacts.format(cwd=Path.cwd())
    assert paths.store == Path.cwd() / "out" / "taxi" / "metadata.db"
