"""What would end a push is told before the run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.errors import InputError
from pipeline import preflight
from pipeline.config import Loaded, load


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    (tmp_path / "rows.csv").write_text("fare,tips\n1.5,0\n")
    config = tmp_path / "small.yaml"
    config.write_text(
        f"data: {{path: {tmp_path / 'rows.csv'}, label: tips}}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"push: {{directory: {tmp_path / 'pushed'}, signing_key_env: MY_KEY}}\n"
        f"runtime: {{output: {tmp_path / 'out'}}}\n"
    )
    return load(str(config))


def test_nothing_stands_in_the_way(loaded: Loaded) -> None:
    preflight.check(loaded)


def test_a_damaged_state_of_the_push_folder(loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "registry.json").write_text('{"stable": 1')
    with pytest.raises(InputError, match=r"registry\.json is damaged"):
        preflight.check(loaded)


def test_a_signing_key_that_did_not_arrive(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "")
    with pytest.raises(InputError, match="MY_KEY is set, and empty"):
        preflight.check(loaded)
