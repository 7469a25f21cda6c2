"""Candidates are fitted to the same rows: a failed candidate is reported with its reason, the others are measured."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import yaml

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
def test_linear_model_improves_trees_where_the_label_is_linear(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=(3000, 20))
    probability = 1 / (1 + np.exp(-x.sum(axis=1) / 2))
    label = random.random(3000) < probability
    names = [f"x{number}" for number in range(20)]
    rows = tmp_path / "rows.csv"
    np.savetxt(rows, np.column_stack([x, label]), "%.6f", ",", header=",".join([*names, "y"]), comments="")
    path = tmp_path / "linear.yaml"
    sections = {
        "data": {"path": str(rows), "label": "y > 0.5"},
        "features": {"columns": dict.fromkeys(names, "z_score")},
        "model": {"kind": "gbt_linear"},
        "evaluation": {"thresholds": {"auc": {"min": 0.6}}},
        "runtime": {"output": f"{tmp_path}/out"},
    }
    path.write_text(yaml.safe_dump(sections))
    fitted = candidates.fit({"gbt_linear": load(str(path)).config}, tmp_path / "logs", 300, lambda line: None)
    scores = fitted["gbt_linear"].scores
    assert set(scores) == {"gbt", "gbt_linear"}
    loss = {kind: float(score.losses.mean()) for kind, score in scores.items()}
    entropy = -np.mean(probability * np.log(probability) + (1 - probability) * np.log1p(-probability))
    assert loss["gbt_linear"] < loss["gbt"] - 0.01
    assert loss["gbt_linear"] < entropy + 0.02


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
