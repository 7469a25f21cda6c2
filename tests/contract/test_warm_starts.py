"""Every warm start begins with the earlier model's weights where their meaning is unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.trainer.warm_start import IdVocabulary, map_ids
from tests.support.programs import training_output
from tests.support.runs.trainer_runs import Prepared, Training

PARAMETER_SERVER = {"kind": "parameter_server", "workers": 2, "ps": 2, "shard_over_mb": 0.0001}
LONG: dict[str, Any] = {"steps": 150, "batch_size": 256, "learning_rate": 0.02}
SHORT: dict[str, Any] = {**LONG, "steps": 10, "learning_rate": 1e-4, "warm_start": True}
TABLES = {"embedding_8/rows", "embedding_4/rows", "wide/rows"}
DENSE = {f"{layer}/{kind}" for layer in ("hidden_0", "deep_logits") for kind in ("kernel", "bias")}


@pytest.fixture(scope="module")
def earlier(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complete a training without an earlier model."""
    folder = tmp_path_factory.mktemp("earlier")
    Training(prepared, folder, {**LONG, "warm_start": True}).end()
    return folder


def loss(folder: Path) -> float:
    """Return the loss of the first steps."""
    return float(training_output.curves(folder / "run" / "train")["loss"][SHORT["steps"]])


def lead(folder: Path) -> str:
    """Return the log of the process that exports."""
    logs = [folder / "run" / "logs" / "chief-0.log", folder / "run" / "logs" / "worker-0.log", folder / "node.log"]
    return next(log for log in logs if log.exists()).read_text()


def read_copied_variables(log: str) -> set[str]:
    return set(re.findall(r"warm start from .* variables copied: (.*)", log)[-1].split(", "))


@pytest.mark.extended
def test_without_a_blessed_model_training_begins_from_scratch(earlier: Path) -> None:
    assert "warm start: no model is blessed yet; training begins from scratch" in (earlier / "node.log").read_text()
    description = json.loads((earlier / "model" / "Format-Serving" / "assets.extra" / "warm_start.json").read_text())
    assert set(description["variables"]) == TABLES | DENSE


@pytest.mark.both_lines
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param({"kind": "none"}, marks=pytest.mark.slow),
        pytest.param({"kind": "mirrored"}, marks=pytest.mark.slow),
        pytest.param({"kind": "mesh", "data": 2, "model": 2}, marks=pytest.mark.slow),
        pytest.param({"kind": "mesh", "place": {"hidden_*": 1}, "micro_batches": 2}, marks=pytest.mark.slow),
        pytest.param(PARAMETER_SERVER, marks=pytest.mark.slow),
        pytest.param({"kind": "multi_worker"}, marks=pytest.mark.slow),
        pytest.param({"kind": "multi_worker", "workers": 2, "model": 2}, marks=pytest.mark.slow),
    ],
)
def test_weights_are_copied_under_every_strategy(
    prepared: Prepared, earlier: Path, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    Training(prepared, tmp_path, {**SHORT, "strategy": strategy}, base=earlier).end()
    assert loss(tmp_path) < 0.25, "from scratch it is about 0.7"
    log = lead(tmp_path)
    assert read_copied_variables(log) == TABLES | DENSE
    assert "is not copied" not in log


@pytest.mark.slow
def test_each_fold_continues_with_its_own_network(prepared: Prepared, tmp_path: Path) -> None:
    for folder in (tmp_path / "earlier", tmp_path / "later"):
        folder.mkdir()
    Training(prepared, tmp_path / "earlier", {**LONG, "folds": 2}).end()
    Training(prepared, tmp_path / "later", {**SHORT, "folds": 2}, base=tmp_path / "earlier").end()
    assert read_copied_variables(lead(tmp_path / "later")) == {
        f"fold_{fold}/{name}" for fold in (0, 1) for name in TABLES | DENSE
    }
    assert loss(tmp_path / "later") < 0.25


@pytest.mark.slow
def test_variable_of_another_shape_is_not_copied(prepared: Prepared, earlier: Path, tmp_path: Path) -> None:
    Training(prepared, tmp_path, SHORT, model={"hidden": [12]}, base=earlier).end()
    log = (tmp_path / "node.log").read_text()
    assert read_copied_variables(log) == TABLES | {"deep_logits/bias"}
    assert re.search(
        r"hidden_0/kernel is not copied: its shape is \[\d+, 12\], but \[\d+, 16\] in the earlier model", log
    )
    assert "deep_logits/kernel is not copied" in log


@pytest.mark.slow
def test_checkpoint_of_the_training_itself_is_restored_instead(
    prepared: Prepared, earlier: Path, tmp_path: Path
) -> None:
    training = {**SHORT, "steps": 2000, "checkpoint": {"every_steps": 10, "keep": 2}}
    running = Training(prepared, tmp_path, training, base=earlier)
    running.until(running.checkpoints)
    running.supervisor.terminate()
    with pytest.raises(Exception, match="training was stopped by SIGTERM"):
        running.end()
    assert (tmp_path / "node.log").read_text().count("warm start from") == 1
    Training(prepared, tmp_path, training, base=earlier).end()
    assert (tmp_path / "node.log").read_text().count("warm start from") == 1, "the log goes on"


VOCAB = {"op": "vocab", "size": 10, "oov_buckets": 2}
OLD = IdVocabulary(VOCAB, 6, [b"Paris", b"Lodz", b"Rome"])
BUCKETS = {"op": "bucketize", "buckets": 4}


@pytest.mark.parametrize(
    ("new", "earlier", "ids"),
    [
        pytest.param(OLD, OLD, [0, 1, 2, 3, 4, 5], id="the-same"),
        pytest.param(
            IdVocabulary(VOCAB, 7, [b"Rome", b"Oslo", b"Paris", b"Lodz"]), OLD, [0, 3, -1, 1, 2, 4, 5], id="by-value"
        ),
        pytest.param(IdVocabulary({**VOCAB, "oov_buckets": 1}, 3, [b"Lodz"]), OLD, [0, 2, -1], id="other-unknown-ones"),
        pytest.param(OLD, None, [-1] * 6, id="a-new-feature"),
        pytest.param(IdVocabulary(BUCKETS, 5, None), IdVocabulary(BUCKETS, 5, None), [0, 1, 2, 3, 4], id="buckets"),
        pytest.param(
            IdVocabulary({**BUCKETS, "buckets": 3}, 4, None), IdVocabulary(BUCKETS, 5, None), [-1] * 4, id="fewer"
        ),
        pytest.param(
            IdVocabulary({"op": "hash", "buckets": 4}, 5, None), IdVocabulary(BUCKETS, 5, None), [-1] * 5, id="op"
        ),
    ],
)
def test_ids_are_matched_by_their_meaning(new: IdVocabulary, earlier: IdVocabulary | None, ids: list[int]) -> None:
    np.testing.assert_array_equal(map_ids(new, earlier), ids)
