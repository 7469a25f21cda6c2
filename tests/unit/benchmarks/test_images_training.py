"""Tests of the figures that the image training benchmark computes from step times."""

from __future__ import annotations

from benchmarks import images_training as images
from benchmarks.measure import Spread
from benchmarks.training import Turns


def test_share_of_the_input_is_the_additional_time_over_a_constant_batch() -> None:
    turns = {
        f"{model}, {side}": [Turns(constant=6.0, real=7.5), Turns(constant=12.0, real=16.0)]
        for model in images._MODELS
        for side in images._SIDES
    }
    facts = images.shares(turns)
    assert facts["share of the input: cnn, decoded once"] == Spread(0.225, 0.2, 0.25)
    assert facts["CPU-ms of a step of 16, constant input: cnn, decoded once"] == Spread(45.0, 30.0, 60.0)
    assert len(facts) == 13
