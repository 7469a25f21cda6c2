"""Tests of the process that trains edge variants, and of finding their teachers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from components.base import child_process
from components.base.errors import InputError, MachineError
from components.edge.config import VariantConfig
from components.edge.executor import find_teachers, train
from components.edge.plan import EdgePlan
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.results import version_manifest
from tests.support.runs import pushed

EXAMPLES = np.array([b"", b""], object)
FEATURES = {"x": np.array([1, 1], np.float32)}


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that replaces the training process by a script.

    The next `times` processes kill themselves after their first variant. Later processes write an error per variant.
    """

    def install(times: int) -> None:
        (tmp_path / "times").write_text(str(times))
        python = tmp_path / "python"
        python.write_text(
            f"""#!{sys.executable}
import json, os, pathlib, pickle, signal, sys
[request], times = pickle.load(sys.stdin.buffer), pathlib.Path({str(tmp_path / "times")!r})
for variant in request["variants"]:
    left = int(times.read_text())
    file = pathlib.Path(request["folder"], variant["file"] + ".trained.json")
    file.write_text(json.dumps({{"error": f"{{left}} processes are killed from now on"}}))
    if left:
        times.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
"""
        )
        python.chmod(0o700)
        monkeypatch.setattr(child_process, "_PYTHON", str(python))

    return install


THREE = [VariantConfig(kind="qat", file=name) for name in "abc"]


def test_another_process_trains_the_rest_of_a_killed_training(tmp_path: Path, killed: Callable[[int], None]) -> None:
    killed(1)
    error_before_the_kill, error_after_the_kill = (
        f"{process_count} processes are killed from now on" for process_count in (1, 0)
    )
    assert train({}, THREE, tmp_path) == {
        "a": error_before_the_kill,
        "b": error_after_the_kill,
        "c": error_after_the_kill,
    }


def test_training_that_is_killed_twice_is_an_error(tmp_path: Path, killed: Callable[[int], None]) -> None:
    killed(2)
    with pytest.raises(MachineError, match="the training of c was killed by SIGKILL, 2 times in a row"):
        train({}, THREE, tmp_path)


def plan_with_teacher(folder: Path) -> EdgePlan:
    features = FeaturePlan(features=FeaturesConfig(columns={"x": "z_score"}), labels=(Label("y"),), task="binary")
    student = VariantConfig(kind="distilled", student={"kind": "mlp"}, teacher=7)
    return EdgePlan(variants=(VariantConfig(), student), features=features, pushed=str(folder))


def push(folder: Path, value: float) -> None:
    """Push a version whose feature x has this value in all rows."""
    module = tf.Module()
    module.f = tf.function(
        lambda examples: {"x": tf.fill(tf.shape(examples), value)}, [tf.TensorSpec([None], tf.string, name="examples")]
    )
    tf.saved_model.save(module, str(folder / "7"), signatures={"transform_features": module.f})
    version_manifest.write(folder / "7", pushed.PROVENANCE.model_copy(update={"version": 7}))


def test_teacher_is_the_trained_model_or_a_version_with_the_same_features(tmp_path: Path) -> None:
    push(tmp_path, 1.0)
    teachers, errors = find_teachers(plan_with_teacher(tmp_path), "model", EXAMPLES, FEATURES)
    assert (teachers, errors) == ({"None": "model", "7": f"{tmp_path}/7"}, {})


def test_teacher_with_other_features_is_reported_as_an_error_of_the_variant(tmp_path: Path) -> None:
    push(tmp_path, 2.0)
    _, errors = find_teachers(plan_with_teacher(tmp_path), "model", EXAMPLES, FEATURES)
    reason = "the teacher's features differ from the run's features: x, row 0: expected 1.0, received 2.0"
    assert errors == {"distilled_mlp": reason}


def test_teacher_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    push(tmp_path, 1.0)
    (tmp_path / "7" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(InputError, match=r"saved_model.pb was changed after the push"):
        find_teachers(plan_with_teacher(tmp_path), "model", EXAMPLES, FEATURES)


def test_missing_teacher_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected the teacher of distilled_mlp in .*/7, received nothing"):
        find_teachers(plan_with_teacher(tmp_path), "model", EXAMPLES, FEATURES)
