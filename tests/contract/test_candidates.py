"""Candidates are fitted to the same rows: a failed candidate is reported with its reason, the others are measured."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from components.models.config import Kind
from components.trainer.config import TrainingConfig
from pipeline.authoring.config import Config, load
from pipeline.orchestration import candidates
from tests.support.data import people


@pytest.mark.extended
def test_candidate_that_fails_stops_no_other_one(tmp_path: Path) -> None:
    path = people.write_config(tmp_path / "people.yaml", people.write(tmp_path / "people.csv", people.rows(2000)))
    config = load(str(path), [f"runtime.output={tmp_path}/out", "model={kind: gbt, trees: 20}"]).config
    training = TrainingConfig.model_validate({"class_weights": {"maybe": 2.0}})
    linear = config.model_copy(update={"model": config.model.with_values({"kind": "linear"}), "training": training})
    configs: dict[Kind, Config] = {"linear": linear, "gbt": config}
    lines: list[str] = []
    fitted = candidates.fit(configs, tmp_path / "logs", 300, lines.append)
    assert list(fitted) == ["linear", "gbt"]
    assert fitted["linear"].why.startswith("training.class_weights: the label has no value 'maybe'")
    assert not fitted["linear"].scores
    [(kind, scores)] = fitted["gbt"].scores.items()
    assert (kind, fitted["gbt"].why) == ("gbt", "")
    assert scores.losses.dtype == np.float32
    assert 200 < len(scores.losses) < 1000, "the rows of the eval split"
    assert scores.losses.mean() < 0.69
    assert scores.metrics["auc"] > 0.6
    ended = [line for line in lines if " s left" not in line]
    assert ended[0].startswith("preparation: done in ")
    assert {line.partition(":")[0] for line in ended[1:]} == {"linear", "gbt"}


@pytest.mark.extended
def test_failed_preparation_is_the_reason_for_all(tmp_path: Path) -> None:
    path = people.write_config(tmp_path / "people.yaml", people.write(tmp_path / "people.csv", people.rows(200)))
    config = load(str(path), [f"runtime.output={tmp_path}/out"]).config
    (tmp_path / "people.csv").write_text("nothing\n")
    fitted = candidates.fit({"linear": config, "gbt": config}, tmp_path / "logs", 300, lambda line: None)
    assert fitted["linear"].why == fitted["gbt"].why != ""


@pytest.mark.slow
def test_training_that_would_take_longer_ends_in_time_with_what_it_has(tmp_path: Path) -> None:
    path = people.write_config(tmp_path / "people.yaml", people.write(tmp_path / "people.csv", people.rows(2000)))
    endless = {"steps": 100_000_000, "batch_size": 64, "checkpoint": {"every_steps": 1000}}
    config = load(str(path), [f"runtime.output={tmp_path}/out", "model={kind: linear}"]).config
    config = config.model_copy(update={"training": TrainingConfig.model_validate(endless)})
    started = time.monotonic()
    fitted = candidates.fit({"linear": config}, tmp_path / "logs", 60, lambda line: None)
    assert time.monotonic() - started < 62
    assert fitted["linear"].why == ""
    assert fitted["linear"].scores["linear"].metrics["auc"] > 0.6
