"""Tests of the schedule by which weights become 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf_keras
from pydantic import ValidationError

from components.edge import fine_tuning
from components.edge.config import VariantConfig

pytestmark = pytest.mark.both_lines

STEPS = 40


class ZerosByStep(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Records the share of zeros after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        kernel = next(weight for weight in self.model.trainable_weights if "kernel" in weight.name)
        self.shares.append(float((kernel.numpy() == 0).mean()))


def prune(**options: Any) -> list[float]:
    tf_keras.utils.set_random_seed(1)
    tensor = tf_keras.Input((20,))
    network = tf_keras.Model(tensor, tf_keras.layers.Dense(20)(tensor))
    zeros = ZerosByStep()

    def fit(wrapped: tf_keras.Model, callbacks: list[tf_keras.callbacks.Callback]) -> None:
        wrapped.compile(tf_keras.optimizers.SGD(0.0), "mse")
        rows = np.zeros((STEPS, 20), np.float32)
        wrapped.fit(rows, rows, batch_size=1, verbose=0, callbacks=[*callbacks, zeros])

    variant = VariantConfig.model_validate({"kind": "pruned", **options})
    fine_tuning.fine_tune(network, variant, STEPS, fit)
    return zeros.shares


def test_zeros_rise_between_begin_and_end() -> None:
    shares = prune(sparsity=0.8, pruning={"initial": 0.2, "begin": 0.25, "end": 0.75})
    # Zhu & Gupta 2017, equation 1: from step 10 to step 30, and constant afterwards.
    done = np.clip((np.arange(1, STEPS + 1) - 10) / 20, 0, 1)
    expected = np.where(np.arange(STEPS) < 9, 0, 0.8 - 0.6 * (1 - done) ** 3)
    np.testing.assert_allclose(shares, expected, rtol=0, atol=0.005)


def test_constant_share_of_zeros_begins_at_once() -> None:
    shares = prune(sparsity=0.5, pruning={"kind": "constant", "begin": 0.5, "end": 0.9})
    assert not any(shares[:19])
    assert shares[21:] == [pytest.approx(0.5, abs=0.01)] * 19


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "clustered", "clusters": 8, "pruning": {"end": 0.5}}, "pruning: expected a sparsity, received none"),
        ({"kind": "pruned", "sparsity": 0.5, "pruning": {"begin": 0.7}}, "expected begin below end, received 0.7 and"),
        (
            {"kind": "pruned", "sparsity": 0.5, "pruning": {"initial": 0.6}},
            "pruning.initial: expected at most sparsity 0.5, received 0.6",
        ),
    ],
)
def test_schedules_that_do_not_fit_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        VariantConfig.model_validate(options)
    assert message in str(raised.value)
