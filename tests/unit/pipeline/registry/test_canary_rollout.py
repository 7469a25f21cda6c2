"""Tests for step-by-step rollouts: promotion, rollback, and changes by other users during a rollout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from components.base.errors import InputError, MachineError
from components.pusher import serving_state
from components.pusher.serving_state import Canary, Stages
from pipeline.authoring.config.canary import CanaryConfig, CanaryStep
from pipeline.registry import canary_rollout, promotion
from pipeline.registry.canary_rollout import Measurement, Outcome, OutputDifference, Predictions, judge
from pipeline.registry.traffic_metrics import Traffic
from pipeline.registry.versions import PushFolder
from tests.support.runs.pushed import push

STEPS = (CanaryStep(percent=10, duration=60), CanaryStep(percent=50, duration=120))
POLICY = CanaryConfig(steps=STEPS, interval=15, patience=100)
SAME = Predictions(900, 9000, (OutputDifference("probability", 0.03, 0.2),))
FINE = Measurement(Traffic(5000, 5, 0.010), Traffic(600, 1, 0.011), SAME)
OTHER = Predictions(900, 9000, (OutputDifference("probability", 0.4, 0.001),))


@pytest.fixture
def push_folder(tmp_path: Path) -> PushFolder:
    for number in (1, 2, 3):
        push(tmp_path / "pushed", number)
    return promote_version(PushFolder(str(tmp_path / "pushed"), None), 1)


def promote_version(push_folder: PushFolder, number: int) -> PushFolder:
    promotion.promote(push_folder, number)
    return push_folder


class Clock:
    """A fake clock that advances only while the rollout waits.

    Args:
      events: Functions to call, by the time in seconds at which they are called.
    """

    def __init__(self, events: dict[float, Callable[[], object]] | None = None) -> None:
        self.now, self.events = 0.0, dict(events or {})

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        for at in [at for at in self.events if at <= self.now]:
            self.events.pop(at)()


def roll_out(
    push_folder: PushFolder,
    measurement: Callable[[float], Measurement] | Measurement,
    policy: CanaryConfig = POLICY,
    number: int = 2,
    clock: Clock | None = None,
) -> tuple[Outcome, list[str]]:
    """Roll out a version with a fake clock and fake measurements.

    Args:
      push_folder: Push folder whose stable version is 1.
      measurement: Measurement to return, or a function from the seconds since the beginning of the step to it.
      policy: Steps and bounds.
      number: Number of the version.
      clock: Clock of the rollout. If None, a new clock.

    Returns:
      The outcome of the rollout and the printed lines.
    """
    lines: list[str] = []
    fake_clock = clock or Clock()

    def measure(stable: int, canary: int, since: float) -> Measurement:
        assert (stable, canary) == (1, number)
        return measurement(fake_clock.now - since) if callable(measurement) else measurement

    outcome = canary_rollout.roll_out(
        push_folder, number, policy, measure, lines.append, wait=fake_clock.wait, clock=lambda: fake_clock.now
    )
    return outcome, lines


def test_version_is_promoted_after_the_last_step_if_it_is_not_worse(push_folder: PushFolder) -> None:
    clock = Clock()
    outcome, lines = roll_out(push_folder, FINE, clock=clock)
    assert (outcome.state, outcome.version, outcome.stable, clock.now) == ("promoted", 2, 1, 180.0)
    assert [(step.percent, step.seconds) for step in outcome.steps] == [(10, 60), (50, 120)]
    state = serving_state.read(push_folder.path)
    assert state.stages == Stages(stable=2)
    assert [change.after for change in state.history[1:]] == [
        Stages(stable=1, canary=Canary(version=2, percent=10)),
        Stages(stable=1, canary=Canary(version=2, percent=50)),
        Stages(stable=2),
    ]
    assert state.history[-1] == outcome.change
    assert outcome.change.reason == (
        "rollout: canary 600 requests, 0.17% failed, 11.0 ms; stable 5000 requests, 0.10% failed, 10.0 ms; "
        "900 and 9000 logged, probability differs by 0.030"
    )
    assert lines[0] == "rollout, step 1 of 2: stable 1, canary 2 at 10 %"
    assert lines[1].startswith("  15 s: canary 600 requests")
    assert lines[4].endswith("; no worse than the stable version")


WORSE = {
    "predictions": (replace(FINE, predictions=OTHER), 15, "output probability differs by 0.400 (bound 0.2)"),
    "certain failures": (replace(FINE, canary=Traffic(20, 10, 0.01)), 15, "50.00% of 20 requests failed"),
    "failures": (replace(FINE, canary=Traffic(1000, 14, 0.01)), 60, "1.40% of 1000 requests failed"),
    "latency": (replace(FINE, canary=Traffic(1000, 0, 0.021)), 60, "latency 21.0 ms, the stable version's 10.0 ms"),
}


@pytest.mark.parametrize(("measured", "seconds", "reason"), WORSE.values(), ids=WORSE)
def test_worse_version_is_rolled_back(
    push_folder: PushFolder, measured: Measurement, seconds: float, reason: str
) -> None:
    clock = Clock()
    outcome, lines = roll_out(push_folder, measured, clock=clock)
    assert (outcome.state, clock.now) == ("rolled back", seconds)
    state = serving_state.read(push_folder.path)
    assert state.stages == Stages(stable=1)
    assert state.history[-1].action == "stop"
    assert (state.history[-1].reason or "").startswith(f"rollout at 10 %: {reason}")
    assert reason in lines[-1]
    assert canary_rollout.find_candidate(push_folder) == 3


def test_canary_passes_if_the_stable_version_is_equally_bad(push_folder: PushFolder) -> None:
    # Both versions are slow and fail often, so the canary is not the cause.
    measurement = Measurement(Traffic(5000, 1500, 1.0), Traffic(600, 180, 1.4), SAME)
    assert roll_out(push_folder, measurement)[0].state == "promoted"


MISSING = {
    "requests": (replace(FINE, canary=Traffic(499, 0, 0.01)), "waits for 500 requests to the canary"),
    "latency": (replace(FINE, stable=Traffic(5000, 0, None)), "waits for the latency of both"),
    "predictions": (replace(FINE, predictions=replace(OTHER, canary=80)), "waits for 500 logged predictions of each"),
}


@pytest.mark.parametrize(("measured", "missing"), MISSING.values(), ids=MISSING)
def test_canary_is_stopped_if_it_cannot_be_judged(push_folder: PushFolder, measured: Measurement, missing: str) -> None:
    clock = Clock()
    outcome, _ = roll_out(push_folder, measured, clock=clock)
    assert (outcome.state, outcome.change.reason) == ("not judged", f"rollout at 10 %: not judged: {missing}")
    assert 160 <= clock.now <= 175
    assert serving_state.read(push_folder.path).stages == Stages(stable=1)


def test_insignificant_difference_of_predictions_is_ignored() -> None:
    chance = Predictions(900, 9000, (OutputDifference("probability", 0.4, 0.2),))
    assert judge(replace(FINE, predictions=chance), POLICY, complete=True) == ("", "")


def test_step_continues_until_there_are_enough_requests(push_folder: PushFolder) -> None:
    clock = Clock()
    outcome, _ = roll_out(
        push_folder, lambda since: FINE if since >= 90 else replace(FINE, canary=Traffic(9, 0, 0.01)), clock=clock
    )
    assert outcome.state == "promoted"
    assert [step.seconds for step in outcome.steps] == [90.0, 120.0]


def test_rollout_waits_for_unavailable_metrics(push_folder: PushFolder) -> None:
    def measure_later(since: float) -> Measurement:
        if since < 70:
            raise MachineError("Prometheus does not answer", "start it")
        return FINE

    outcome, lines = roll_out(push_folder, measure_later)
    assert outcome.state == "promoted"
    assert lines[1] == "  15 s: no metrics; Prometheus does not answer"

    def fail(_: float) -> Measurement:
        raise MachineError("Prometheus does not answer", "start it")

    outcome, _ = roll_out(promote_version(push_folder, 1), fail)
    assert (outcome.state, outcome.steps[0].measurement) == ("not judged", None)


def test_rollout_continues_at_the_share_of_the_canary(push_folder: PushFolder) -> None:
    promotion.set_canary(push_folder, 2, 50)
    assert canary_rollout.find_candidate(push_folder) == 2
    clock = Clock()
    outcome, lines = roll_out(push_folder, FINE, clock=clock)
    assert (outcome.state, clock.now) == ("promoted", 120.0)
    assert lines[0] == "rollout, step 2 of 2: stable 1, canary 2 at 50 %"
    assert [change.action for change in serving_state.read(push_folder.path).history] == [
        "promote",
        "canary",
        "promote",
    ]


def test_canary_beyond_the_last_step_repeats_that_step(push_folder: PushFolder) -> None:
    promotion.set_canary(push_folder, 2, 80)
    outcome, lines = roll_out(push_folder, replace(FINE, predictions=OTHER))
    assert (outcome.state, [step.percent for step in outcome.steps]) == ("rolled back", [50])
    assert lines[0] == "rollout, step 2 of 2: stable 1, canary 2 at 50 %"


@pytest.mark.parametrize("at", [20.0, 60.0])
def test_change_by_another_user_ends_the_rollout(push_folder: PushFolder, at: float) -> None:
    clock = Clock({at: lambda: promotion.stop(push_folder, "by hand")})
    with pytest.raises(InputError, match=r"expected stable 1, canary 2 at 10 %, received stable 1: .* \(stop: by hand"):
        roll_out(push_folder, FINE, clock=clock)
    assert serving_state.read(push_folder.path).history[-1].reason == "by hand"


def test_deleted_state_ends_the_rollout(push_folder: PushFolder) -> None:
    clock = Clock({20.0: (Path(push_folder.path) / serving_state.NAME).unlink})
    with pytest.raises(InputError, match=r"canary 2 at 10 %, received no stable version\n"):
        roll_out(push_folder, FINE, clock=clock)


@pytest.mark.parametrize("change", [promotion.promote, promotion.stop])
def test_change_is_rejected_if_the_stages_are_not_as_expected(
    push_folder: PushFolder, change: Callable[..., object]
) -> None:
    state = promotion.set_canary(push_folder, 2, 10)
    promotion.set_canary(push_folder, 2, 20)
    arguments = (2,) if change is promotion.promote else ()
    with pytest.raises(InputError, match="expected stable 1, canary 2 at 10 %, received stable 1, canary 2 at 20 %"):
        change(push_folder, *arguments, expected=state.stages)


def test_invalid_rollout_is_rejected(push_folder: PushFolder, tmp_path: Path) -> None:
    promotion.set_canary(push_folder, 3, 10)
    with pytest.raises(InputError, match="expected no canary, or version 2, received stable 1, canary 3 at 10 %"):
        roll_out(push_folder, FINE)
    promotion.stop(push_folder)
    with pytest.raises(InputError, match="received version 1, which is stable"):
        roll_out(push_folder, FINE, number=1)
    push(tmp_path / "new", 7)
    empty = PushFolder(str(tmp_path / "new"), None)
    assert canary_rollout.find_candidate(empty) is None
    with pytest.raises(InputError, match="expected a stable version"):
        roll_out(empty, FINE, number=7)


def test_candidate_is_the_newest_version_that_has_never_been_a_canary(push_folder: PushFolder) -> None:
    assert canary_rollout.find_candidate(push_folder) == 3
    promotion.set_canary(push_folder, 3, 10)
    promotion.stop(push_folder)
    assert canary_rollout.find_candidate(push_folder) is None
    promotion.promote(push_folder, 3)
    assert canary_rollout.find_candidate(push_folder) is None


def test_apply_command_runs_after_every_change(push_folder: PushFolder, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'applied')!r}, 'a').write('x')"
    with_command = replace(push_folder, apply=(sys.executable, "-c", code))
    roll_out(with_command, FINE)
    assert (tmp_path / "applied").read_text() == "xxx"
    with_failing_command = replace(push_folder, apply=(sys.executable, "-c", "raise SystemExit(7)"))
    with pytest.raises(
        MachineError, match=r"canary.apply: .*: it ended with exit code 7; the stages and the files are"
    ):
        promotion.promote(with_failing_command, 1)
    assert serving_state.read(push_folder.path).stages == Stages(stable=1)
    with pytest.raises(MachineError, match="it does not start: No such file"):
        promotion.promote(replace(push_folder, apply=("/no/such/program",)), 1)


def simulate_measurement(random: np.random.Generator, errors: float, seconds: float) -> Measurement:
    """Simulate 10 requests per second to the canary and 90 to the stable version, which fails in 1 % of them."""
    requests = np.array([90, 10]) * seconds
    failed = random.binomial(requests.astype(int), [0.01, errors])
    return Measurement(Traffic(requests[0], failed[0], 0.01), Traffic(requests[1], failed[1], 0.01), None)


def judge_repeatedly(random: np.random.Generator, errors: float) -> Iterator[tuple[str, bool]]:
    """Judge a step of ten minutes every 15 seconds. The failures are drawn independently for every measurement."""
    for seconds in range(15, 601, 15):
        complete = seconds == 600
        worse, _ = judge(simulate_measurement(random, errors, seconds), CanaryConfig(), complete=complete)
        yield worse, complete


def test_false_alarms_are_rare_and_failures_are_detected_early() -> None:
    random = np.random.default_rng(7)
    alarms = sum(any(worse for worse, _ in judge_repeatedly(random, 0.01)) for _ in range(100))
    assert alarms <= 1
    # Five percentage points more requests fail. This is always detected, mostly in the first two minutes.
    detections = [
        next((index for index, (worse, _) in enumerate(judge_repeatedly(random, 0.06)) if worse), None)
        for _ in range(30)
    ]
    assert None not in detections
    assert np.median([index for index in detections if index is not None]) < 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": [{"percent": 20}, {"percent": 10}]}, "expected steps with ascending shares, received 20, 10"),
        ({"steps": [{"percent": 0.001}]}, "expected at most two decimals, received 0.001"),
        ({"steps": []}, "at least 1 item"),
        ({"prometheus": "localhost:9090"}, "should match pattern"),
        ({"interval": 0}, "greater than 0"),
    ],
)
def test_invalid_policy_is_rejected(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CanaryConfig.model_validate(values)


def test_policy_accepts_durations_with_units() -> None:
    policy = CanaryConfig.model_validate({"steps": [{"percent": 1, "duration": "2h"}], "patience": "1d"})
    assert (policy.steps[0].duration, policy.patience) == (7200.0, 86_400.0)
