"""Images train under every strategy: workers decode them, keep the pixels, augment and blend them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml

from data import shapes
from tests.support.data.tolerances import float32_sum
from tests.support.programs import training_output
from tests.support.runs.command import command
from tests.support.runs.trainer_runs import Prepared, Training

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]

IMAGES, STEPS = 80, 20
CONFIG: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 16,
    "cache": "pixels",
    "checkpoint": {"every_steps": STEPS},
    "augmentation": {"flip": True, "mixup": 0.4},
}
STRATEGIES = {
    "none": {"kind": "none"},
    "multi_worker": {"kind": "multi_worker", "workers": 2},
    "parameter_server": {"kind": "parameter_server", "workers": 2, "ps": 1},
    "elastic": {"kind": "parameter_server", "workers": 2, "max_workers": 2, "ps": 1},
    "mesh": {"kind": "mesh", "data": 2, "model": 2},
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return some images up to Transform."""
    folder = tmp_path_factory.mktemp("images")
    shapes.write(folder / "files", IMAGES)
    config = {
        "data": {"path": str(folder / "files"), "format": "images", "label": "label", "task": "multiclass"},
        "features": {"columns": {"image": {"image": {"height": 16, "width": 16, "channels": 3}}}},
        "model": {"kind": "cnn", "filters": [8]},
        "evaluation": {"thresholds": {"accuracy": {"min": 0.0}}},
    }
    path = folder / "images.yaml"
    path.write_text(yaml.safe_dump(config))
    ended = command("--local", "--config", str(path), "--to", "Transform", "--output", str(folder))
    assert ended.exit_code == 0, ended.err
    return Prepared(str(path), folder / "images" / "artifacts")


@pytest.mark.parametrize(
    "strategy",
    [
        "none",
        *(pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES if name != "none"),
    ],
)
def test_images_train_and_are_predicted_from_files(prepared: Prepared, tmp_path: Path, strategy: str) -> None:
    Training(prepared, tmp_path, {**CONFIG, "strategy": STRATEGIES[strategy]}).end()
    losses = training_output.curves(tmp_path / "run" / "train")["loss"]
    assert set(losses) == {STEPS}
    # After few steps the loss is about the loss of equal probabilities for 20 classes.
    assert losses[STEPS] == pytest.approx(np.log(len(shapes.CLASSES)), rel=0.3, abs=0.1)
    model = tf.saved_model.load(str(tmp_path / "model" / "Format-Serving"))
    image = next((prepared.artifacts.parent.parent / "files").glob("*/*.jpg")).read_bytes()
    probabilities = model.signatures["raw"](image=tf.constant([image, image]))["probabilities"].numpy()
    assert probabilities.shape == (2, len(shapes.CLASSES))
    float32_sum(len(shapes.CLASSES)).assert_close(probabilities.sum(axis=1), 1)


@pytest.mark.slow
def test_pixels_in_memory_train_the_same_model(prepared: Prepared, tmp_path: Path) -> None:
    losses = []
    for cache in ("pixels", "memory"):
        (tmp_path / cache).mkdir()
        Training(prepared, tmp_path / cache, {**CONFIG, "cache": cache}).end()
        losses.append(training_output.curves(tmp_path / cache / "run" / "train")["loss"][STEPS])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-3), "the pixels are rounded to 8 bits"
