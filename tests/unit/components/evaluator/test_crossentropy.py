"""Crossentropy of a multiclass task: the mean over the examples, and the loss of unknown classes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn.metrics import log_loss

from components.base.errors import InputError
from components.evaluator.crossentropy import MulticlassCrossentropy
from tests.support.data.tolerances import float64_sum


def value(labels: list[int], probabilities: list[list[float]], pieces: int = 1) -> float:
    computation, derived, *_ = MulticlassCrossentropy("x").computations()
    combiner, totals = computation.combiner, []
    for piece in np.array_split(np.arange(len(labels)), pieces):
        total = combiner.create_accumulator()
        for row in piece:
            element = tfma.metrics.StandardMetricInputs(
                label=np.array([labels[row]]), prediction=np.array(probabilities[row]), example_weight=np.array([1.0])
            )
            total = combiner.add_input(total, element)
        totals.append(total)
    ((_, actual),) = derived.result(combiner.extract_output(combiner.merge_accumulators(totals))).items()
    return float(actual)


def test_crossentropy_is_the_mean_over_all_shards() -> None:
    random = np.random.default_rng(1)
    probabilities = random.dirichlet([1, 1, 1], 30).tolist()
    labels = random.integers(0, 3, 30).tolist()
    expected = log_loss(labels, probabilities, labels=[0, 1, 2])
    assert value(labels, probabilities) == float64_sum(30).approx(expected)
    assert value(labels, probabilities, pieces=4) == float64_sum(30).approx(expected)


def test_class_that_training_does_not_know_has_the_least_probability() -> None:
    assert value([-1], [[0.5, 0.5]]) == float64_sum(2).approx(-np.log(1e-7))
    assert value([0, -1], [[1.0, 0.0], [0.5, 0.5]]) == float64_sum(2).approx(-np.log(1e-7) / 2)


def test_crossentropy_without_examples_is_nan() -> None:
    assert np.isnan(value([], []))


@pytest.mark.parametrize("logits", [[-0.1, 0.4], [0.4, 1.7]])
def test_logits_are_refused(logits: list[float]) -> None:
    with pytest.raises(InputError, match="expected probabilities, received predictions from"):
        value([0], [logits])
