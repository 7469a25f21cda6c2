"""Tests of the schedules of the learning rate: their values equal closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from components.trainer.config import TrainingConfig
from components.trainer.optimizer_config import ScheduleConfig
from components.trainer.schedule import create_schedule

pytestmark = pytest.mark.both_lines

RATE, STEPS = 0.2, 100


@pytest.mark.parametrize(
    ("fields", "share"),
    [
        ({}, lambda done: (1 + np.cos(np.pi * done)) / 2),
        ({"end": 0.1}, lambda done: 0.1 + 0.9 * (1 + np.cos(np.pi * done)) / 2),
        ({"kind": "constant"}, lambda done: 1 + 0 * done),
        ({"kind": "exponential", "factor": 0.5, "every_steps": 10}, lambda done: 0.5 ** (done * STEPS / 10)),
        ({"kind": "exponential"}, lambda done: 0.1**done),
        ({"kind": "polynomial", "end": 0.2, "power": 2}, lambda done: 0.2 + 0.8 * (1 - done) ** 2),
        (
            {"kind": "piecewise", "shares": {60: 0.01, 30: 0.1}},
            lambda done: np.select([done * STEPS < 29.5, done * STEPS < 59.5], [1, 0.1], 0.01),
        ),
    ],
)
def test_rate_of_each_step_is_the_closed_form(fields: dict[str, Any], share: Callable[[Any], Any]) -> None:
    schedule = create_schedule(ScheduleConfig(**fields), RATE, STEPS)
    steps = np.arange(STEPS)
    np.testing.assert_allclose(
        [float(schedule(step)) for step in steps], RATE * share(steps / STEPS), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("kind", ["cosine", "constant", "polynomial", "exponential"])
def test_schedule_begins_after_the_warm_up(kind: Any) -> None:
    warm = create_schedule(ScheduleConfig(kind=kind, warm_up_steps=20), RATE, STEPS)
    cold = create_schedule(ScheduleConfig(kind=kind), RATE, STEPS - 20)
    rates = [float(warm(step)) for step in range(STEPS)]
    np.testing.assert_allclose(rates[:20], RATE * np.arange(1, 21) / 20, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(rates[20:], [float(cold(step)) for step in range(STEPS - 20)], rtol=1e-5, atol=1e-7)


def test_steps_of_shares_are_counted_from_the_start_of_the_warm_up() -> None:
    schedule = create_schedule(
        ScheduleConfig.model_validate({"kind": "piecewise", "shares": {50: 0.1}, "warm_up_steps": 20}), RATE, STEPS
    )
    rates = [float(schedule(step)) for step in (19, 20, 49, 50, 99)]
    np.testing.assert_allclose(rates, [RATE, RATE, RATE, RATE / 10, RATE / 10], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"end": 0.1, "kind": "constant"}, "end: expected kind cosine or polynomial, received constant; remove end"),
        ({"kind": "piecewise"}, "piecewise: expected shares, as in {1000: 0.1}, received none"),
        (
            {"kind": "piecewise", "shares": {5: 0.1}, "warm_up_steps": 9},
            "shares: expected steps after warm_up_steps 9, received 5",
        ),
        ({"warm_up_steps": 50}, "schedule.warm_up_steps: expected fewer than the 50 steps, received 50"),
    ],
)
def test_schedules_that_cannot_be_followed_are_rejected(schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TrainingConfig.model_validate({"steps": 50, "schedule": schedule})
    assert message in str(raised.value)
