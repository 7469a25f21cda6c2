"""What every warm start gives: a training that begins where the earlier model was, as far as both mean the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trained
from training import Prepared, Training

from components.trainer.warm import Meaning, places

SERVED = {"kind": "parameter_server", "workers": 2, "ps": 2, "shard_over_mb": 0.0001}
LONG: dict[str, Any] = {"steps": 150, "batch_size": 256, "learning_rate": 0.02}
SHORT: dict[str, Any] = {**LONG, "steps": 10, "learning_rate": 1e-4, "warm_start": True}
TABLES = {"embedding_8/rows", "embedding_4/rows", "wide/rows"}
DENSE = {f"{layer}/{kind}" for layer in ("hidden_0", "deep_logits") for kind in ("kernel", "bias")}


@pytest.fixture(scope="module")
def earlier(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that has ended; nobody was there before it."""
    folder = tmp_path_factory.mktemp("earlier")
    Training(prepared, folder, {**LONG, "warm_start": True}).end()
    return folder


def loss(folder: Path) -> float:
    """That of the first steps."""
    return float(trained.curves(folder / "run" / "train")["loss"][SHORT["steps"]])


def lead(folder: Path) -> str:
    """The log of the process that exports."""
    logs = [folder / "run" / "logs" / "chief-0.log", folder / "run" / "logs" / "worker-0.log", folder / "node.log"]
    return next(log for log in logs if log.exists()).read_text()


def taken(log: str) -> set[str]:
    return set(re.findall(r"warm start from .* variables taken over: (.*)", log)[-1].split(", "))


@pytest.mark.slow
def test_without_a_blessed_model_training_begins_from_scratch_and_says_so(earlier: Path) -> None:
    assert "warm start: no model is blessed yet; training begins from scratch" in (earlier / "node.log").read_text()
    told = json.loads((earlier / "model" / "Format-Serving" / "assets.extra" / "warm_start.json").read_text())
    assert set(told["variables"]) == TABLES | DENSE


@pytest.mark.slow
@pytest.mark.both_lines
@pytest.mark.parametrize("strategy", [{"kind": "none"}, {"kind": "mirrored"}, SERVED, {"kind": "multi_worker"}])
def test_it_begins_where_the_earlier_model_was(
    prepared: Prepared, earlier: Path, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    Training(prepared, tmp_path, {**SHORT, "strategy": strategy}, base=earlier).end()
    assert loss(tmp_path) < 0.25, "from scratch it is about 0.7"
    log = lead(tmp_path)
    assert taken(log) == TABLES | DENSE
    assert "begins anew" not in log


@pytest.mark.slow
def test_what_has_another_shape_begins_anew(prepared: Prepared, earlier: Path, tmp_path: Path) -> None:
    Training(prepared, tmp_path, SHORT, model={"hidden": [12]}, base=earlier).end()
    log = (tmp_path / "node.log").read_text()
    assert taken(log) == TABLES | {"deep_logits/bias"}
    assert re.search(r"hidden_0/kernel begins anew: its shape is \[\d+, 12\], and the earlier model's \[\d+, 16\]", log)
    assert "deep_logits/kernel begins anew" in log


@pytest.mark.slow
def test_a_checkpoint_of_its_own_wins(prepared: Prepared, earlier: Path, tmp_path: Path) -> None:
    training = {**SHORT, "steps": 2000, "checkpoint": {"every_steps": 10, "keep": 2}}
    running = Training(prepared, tmp_path, training, base=earlier)
    running.until(running.checkpoints)
    running.supervisor.terminate()
    with pytest.raises(Exception, match="asked to end by SIGTERM"):
        running.end()
    assert (tmp_path / "node.log").read_text().count("warm start from") == 1
    Training(prepared, tmp_path, training, base=earlier).end()
    assert (tmp_path / "node.log").read_text().count("warm start from") == 1, "the log goes on"


VOCAB = {"op": "vocab", "size": 10, "oov_buckets": 2}
OLD = Meaning(VOCAB, 6, [b"Paris", b"Lodz", b"Rome"])
BUCKETS = {"op": "bucketize", "buckets": 4}


@pytest.mark.parametrize(
    ("mine", "theirs", "rows"),
    [
        pytest.param(OLD, OLD, [0, 1, 2, 3, 4, 5], id="the-same"),
        pytest.param(
            Meaning(VOCAB, 7, [b"Rome", b"Oslo", b"Paris", b"Lodz"]), OLD, [0, 3, -1, 1, 2, 4, 5], id="by-value"
        ),
        pytest.param(Meaning({**VOCAB, "oov_buckets": 1}, 3, [b"Lodz"]), OLD, [0, 2, -1], id="other-unknown-ones"),
        pytest.param(OLD, None, [-1] * 6, id="a-new-feature"),
        pytest.param(Meaning(BUCKETS, 5, None), Meaning(BUCKETS, 5, None), [0, 1, 2, 3, 4], id="buckets"),
        pytest.param(Meaning({**BUCKETS, "buckets": 3}, 4, None), Meaning(BUCKETS, 5, None), [-1] * 4, id="fewer"),
        pytest.param(Meaning({"op": "hash", "buckets": 4}, 5, None), Meaning(BUCKETS, 5, None), [-1] * 5, id="op"),
    ],
)
def test_rows_go_by_what_their_ids_stand_for(mine: Meaning, theirs: Meaning | None, rows: list[int]) -> None:
    np.testing.assert_array_equal(places(mine, theirs), rows)
