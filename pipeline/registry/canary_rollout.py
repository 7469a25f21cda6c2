"""Increases the canary's share step by step while it is no worse than the stable version; promotes it, or stops it.

Each step ends after its time and the least number of requests. Then the share of failed requests and the latency are
judged, of all requests since the step began. At each look before, the canary is stopped if its predictions differ
from the stable version's, or if it certainly fails more often: the lower confidence limit of its share of failed
requests (C. Clopper, E. Pearson, The Use of Confidence or Fiducial Limits, Biometrika 26(4), 1934) exceeds the bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from components.errors import InputError, MachineError
from components.pusher.serving_state import Change
from pipeline.authoring.config.canary import CanaryConfig
from pipeline.registry import promotion
from pipeline.registry.traffic_metrics import Traffic
from pipeline.registry.versions import PushFolder

_CERTAIN = 1e-4
"""The probability that a share is below its lower limit. It is small, because each look is a test."""
_LEVEL = 0.01
"""Of the test of predictions."""
_LATENCY_SECONDS = 0.005
"""A difference that is never too great: of latencies of a millisecond, noise is a multiple."""
_SHORTEST_WAIT_SECONDS = 0.5


State = Literal["promoted", "rolled back", "not judged"]


@dataclass(frozen=True)
class OutputDifference:
    """An output of two versions.

    Attributes:
      name: of the output.
      difference: of the predictions; see canary_predictions.
      p_value: of the test whether they are equally distributed, corrected for the number of outputs.
    """

    name: str
    difference: float
    p_value: float


@dataclass(frozen=True)
class Predictions:
    """What the request log has of both versions.

    Attributes:
      canary: the number of its predictions.
      stable: the number of the stable version's.
      outputs: the most different one first; none before both have a prediction.
    """

    canary: int
    stable: int
    outputs: tuple[OutputDifference, ...]


@dataclass(frozen=True)
class Measurement:
    """Both versions since the step began.

    Attributes:
      stable: requests to the stable version.
      canary: requests to the canary.
      predictions: of both; None if they are not compared.
    """

    stable: Traffic
    canary: Traffic
    predictions: Predictions | None


@dataclass(frozen=True)
class Step:
    """A finished step.

    Attributes:
      percent: the canary's share.
      seconds: how long it took.
      measurement: the last one; None if there was none.
    """

    percent: float
    seconds: float
    measurement: Measurement | None


@dataclass(frozen=True)
class Outcome:
    """How a rollout has ended.

    Attributes:
      state: promoted: the version is stable. rolled back: it was worse, and has no traffic. not judged: requests or
        metrics were missing, and it has no traffic.
      version: the version.
      stable: the version that was stable.
      change: the last entry of the history, with the reason.
      steps: the finished ones.
    """

    state: State
    version: int
    stable: int
    change: Change
    steps: tuple[Step, ...]


def candidate(push_folder: PushFolder) -> int | None:
    """The canary, or else the newest version if it is newer than the stable one and was no canary before."""
    now = push_folder.state()
    if now.canary:
        return now.canary.version
    newest = max(push_folder.versions(), default=0)
    tried = {change.after.canary.version for change in now.history if change.after.canary}
    return newest if now.stable is not None and newest > now.stable and newest not in tried else None


def roll_out(
    push_folder: PushFolder,
    number: int,
    policy: CanaryConfig,
    measure: Callable[[int, int, float], Measurement],
    show: Callable[[str], None],
    *,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Takes the canary through the steps of the policy.

    Args:
      push_folder: the push folder.
      number: the version. If it is the canary, its rollout continues at the step with its present share, or else with
        the next greater one; with none, at the last.
      policy: steps and bounds.
      measure: the stable version, the canary, and when the step began, in seconds since 1970 → both since then. It
        raises MachineError if there are no metrics.
      show: gets a line at each look.
      wait: waits so many seconds.
      clock: the time, in seconds since 1970.

    Raises:
      InputError: there is no stable version, or another canary; the version does not match its manifest; or somebody
        has changed the stages meanwhile.
      MachineError: the proxy does not take a change (`canary.apply`).
    """
    stages = push_folder.state().stages
    if stages.canary and stages.canary.version != number:
        raise InputError(
            f"expected no canary, or version {number}, received {promotion.describe(stages)}",
            "end it first: `python runner.py canary --stop`",
        )
    stable = promotion.stable_version(stages, number)
    present = stages.canary.percent if stages.canary else 0.0
    # No version is promoted without a step.
    first = next((at for at, step in enumerate(policy.steps) if step.percent >= present), len(policy.steps) - 1)
    done: list[Step] = []
    for at, step in enumerate(policy.steps[first:], first + 1):
        title = f"rollout, step {at} of {len(policy.steps)}"
        stages = promotion.canary(push_folder, number, step.percent, title, expected=stages).stages
        show(f"{title}: {promotion.describe(stages)}")
        start, measured = clock(), None
        worse, missing, figures = "", "unmeasured", ""
        while missing and not worse and clock() < start + step.duration + policy.patience:
            wait(min(policy.interval, max(start + step.duration - clock(), _SHORTEST_WAIT_SECONDS)))
            if (now := push_folder.state()).stages != stages:
                raise promotion.changed_meanwhile(stages, now)
            elapsed = clock() - start
            try:
                measured = measure(stable, number, start)
            except MachineError as error:
                missing, figures = error.headline, "no metrics"
            else:
                worse, missing = judge(measured, policy, complete=elapsed >= step.duration)
                figures = describe(measured)
            show(f"  {elapsed:.0f} s: {figures}; {worse or missing or 'no worse than the stable version'}")
        done.append(Step(step.percent, clock() - start, measured))
        if worse or missing:
            reason = f"rollout at {step.percent:g} %: {worse or f'not judged: {missing}'}"
            change = promotion.stop(push_folder, reason, expected=stages).history[-1]
            return Outcome("rolled back" if worse else "not judged", number, stable, change, tuple(done))
    reason = f"rollout: {figures}"
    change = promotion.promote(push_folder, number, reason, expected=stages).history[-1]
    return Outcome("promoted", number, stable, change, tuple(done))


def judge(measured: Measurement, policy: CanaryConfig, *, complete: bool) -> tuple[str, str]:
    """Judges the canary.

    Args:
      measured: both versions since the step began.
      policy: bounds.
      complete: whether the time of the step is over.

    Returns:
      In what the canary is worse, and what the step waits for; empty texts: nothing.
    """
    stable, canary, predictions = measured.stable, measured.canary, measured.predictions
    is_enough = canary.requests >= policy.least_requests
    share = canary.error_share if complete and is_enough else _lower_limit(canary)
    worse, missing = [], []
    if share > stable.error_share + policy.max_errors:
        worse.append(
            f"{canary.error_share:.2%} of {canary.requests:.0f} requests failed, of the stable version's "
            f"{stable.requests:.0f} {stable.error_share:.2%}"
        )
    if canary.latency is None or stable.latency is None:
        missing.append("the latency of both")
    elif complete and is_enough and canary.latency > policy.max_latency * stable.latency + _LATENCY_SECONDS:
        worse.append(f"latency {_ms(canary)}, the stable version's {_ms(stable)}")
    if predictions is not None:
        if min(predictions.canary, predictions.stable) < policy.least_requests:
            missing.append(f"{policy.least_requests} logged predictions of each")
        else:
            worse += [
                f"output {each.name} differs by {each.difference:.3f} (bound {policy.max_difference:g})"
                for each in predictions.outputs
                if each.difference >= policy.max_difference and each.p_value < _LEVEL
            ]
    if not is_enough:
        missing.append(f"{policy.least_requests} requests to the canary")
    if not complete:
        missing.append("the end of the step's time")
    return "; ".join(worse), f"waits for {', '.join(missing)}" if missing else ""


def describe(measured: Measurement) -> str:
    """Returns a measurement in words, on a line."""
    canary, stable = (
        f"{each.requests:.0f} requests, {each.error_share:.2%} failed, {_ms(each)}"
        for each in (measured.canary, measured.stable)
    )
    predictions = measured.predictions
    logged = f"; {predictions.canary} and {predictions.stable} logged" if predictions else ""
    outputs = predictions.outputs[:1] if predictions else ()
    differs = "".join(f", {each.name} differs by {each.difference:.3f}" for each in outputs)
    return f"canary {canary}; stable {stable}{logged}{differs}"


def _lower_limit(traffic: Traffic) -> float:
    """The lower confidence limit of the share of failed requests."""
    failed = min(traffic.errors, traffic.requests)
    return float(stats.beta.ppf(_CERTAIN, failed, traffic.requests - failed + 1)) if failed > 0 else 0.0


def _ms(traffic: Traffic) -> str:
    return "no latency" if traffic.latency is None else f"{traffic.latency * 1e3:.1f} ms"
