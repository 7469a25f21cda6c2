"""The benchmark of images: what it makes of the times of a step."""

from __future__ import annotations

from benchmarks import images
from benchmarks.measure import Spread


def test_share_of_the_input_is_what_a_step_takes_above_one_without_it() -> None:
    cpu = {"decoded for each batch": 0.5, "decoded once": 0.45, "decoded once, unchanged": 0.4}
    steps = {f"{model}, {side}": [each, 2 * each] for model in images._MODELS for side, each in cpu.items()}
    facts = images.shares(steps)
    assert facts["share of the input: cnn, decoded for each batch"] == Spread.of([0.2, 0.2])
    assert facts["share of the input: EfficientNetB0, decoded once"] == Spread.of([1 - 0.4 / 0.45] * 2)
    assert facts["CPU-ms of a step of 32: cnn, decoded once"] == Spread(675.0, 450.0, 900.0)
    assert len(facts) == 11
