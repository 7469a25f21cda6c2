"""Increases the canary's share step by step; promotes the canary in the end, or stops it as soon as it is worse.

A step ends when its duration is over and the canary has answered the minimum number of requests. The error rate and
the latency of all requests since the beginning of the step are then compared with the stable version.

Two checks also run at each measurement during a step, and can stop the canary early. The first compares the
predictions. The second compares the lower confidence limit of the canary's error rate with the bound, so that a
few early failures do not stop it. Source of the limit: C. Clopper, E. Pearson, The Use of Confidence or Fiducial
Limits, Biometrika 26(4), 1934.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from components.base.errors import InputError, MachineError
from components.pusher.serving_state import Change
from pipeline.authoring.config.canary import CanaryConfig
from pipeline.registry import promotion
from pipeline.registry.traffic_metrics import Traffic
from pipeline.registry.versions import PushFolder

_LIMIT_ERROR = 1e-4
"""Probability that the true error rate is below its lower confidence limit.

It is small because every measurement of a step repeats the test.
"""
_SIGNIFICANCE = 0.01
"""Significance level of the test that compares predictions."""
_LATENCY_SECONDS = 0.005
"""Latency that is added to the bound, because a latency of about 1 ms can double by noise alone."""
_SHORTEST_WAIT_SECONDS = 0.5


State = Literal["promoted", "rolled back", "not judged"]


@dataclass(frozen=True)
class OutputDifference:
    """The difference between two versions in one output.

    Attributes:
      name: Name of the output.
      difference: Distance between the predictions of the two versions. `canary_predictions` defines it.
      p_value: p-value of the test that both versions' predictions have the same distribution, corrected for the number
        of outputs.
    """

    name: str
    difference: float
    p_value: float


@dataclass(frozen=True)
class Predictions:
    """The logged predictions of both versions.

    Attributes:
      canary: Number of logged predictions of the canary.
      stable: Number of logged predictions of the stable version.
      outputs: Differences per output, the largest first. Empty until both versions have logged a prediction.
    """

    canary: int
    stable: int
    outputs: tuple[OutputDifference, ...]


@dataclass(frozen=True)
class Measurement:
    """Requests and predictions of both versions since the beginning of a step.

    Attributes:
      stable: Requests to the stable version.
      canary: Requests to the canary.
      predictions: Logged predictions of both versions. None if requests are not logged.
    """

    stable: Traffic
    canary: Traffic
    predictions: Predictions | None


@dataclass(frozen=True)
class Step:
    """A finished step of a rollout.

    Attributes:
      percent: The canary's share of the traffic, in percent.
      seconds: Duration of the step.
      measurement: Last measurement of the step. None if no measurement succeeded.
    """

    percent: float
    seconds: float
    measurement: Measurement | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a rollout.

    Attributes:
      state: `promoted` if the version is now stable; `rolled back` if it was worse than the stable version; `not
        judged` if requests or metrics were missing. In the last two cases it no longer receives traffic.
      version: Number of the version that was rolled out.
      stable: Number of the version that was stable during the rollout.
      change: Last entry of the history, with the reason.
      steps: The finished steps.
    """

    state: State
    version: int
    stable: int
    change: Change
    steps: tuple[Step, ...]


def find_candidate(push_folder: PushFolder) -> int | None:
    """Return the version to roll out.

    Returns:
      The canary if there is one. Otherwise the newest version, if it is newer than the stable version and has never
      been a canary. None if no version qualifies.
    """
    state = push_folder.state()
    if state.canary:
        return state.canary.version
    newest = max(push_folder.versions(), default=0)
    earlier_canaries = {change.after.canary.version for change in state.history if change.after.canary}
    is_newer = state.stable is not None and newest > state.stable
    return newest if is_newer and newest not in earlier_canaries else None


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
    """Roll out a version in the steps of a policy.

    Args:
      push_folder: The push folder.
      number: Number of the version. If it already is the canary, the rollout continues at the first step whose share
        is at least the canary's current share, or at the last step if all shares are smaller.
      policy: Steps and bounds.
      measure: Function that measures both versions since a time. It is called with the stable version, the canary, and
        the Unix time of the beginning of the step in seconds. It raises MachineError if metrics are missing.
      show: Function that prints a line. It is called when a step begins and after every measurement.
      wait: Function that waits for a number of seconds.
      clock: Function that returns the Unix time in seconds.

    Raises:
      InputError: There is no stable version; another version is the canary; the version does not match its manifest;
        or somebody else changed the stages during the rollout.
      MachineError: The command `canary.apply` failed, so the proxy may still use the previous stages.
    """
    stages = push_folder.state().stages
    if stages.canary and stages.canary.version != number:
        raise InputError(
            f"expected no canary, or version {number}, received {promotion.describe(stages)}",
            "end it first: `python runner.py models canary --stop`",
        )
    stable = promotion.require_stable_version(stages, number)
    current_percent = stages.canary.percent if stages.canary else 0.0
    # A canary beyond the last step repeats that step, so that no version is promoted without a measurement.
    first = next(
        (index for index, step in enumerate(policy.steps) if step.percent >= current_percent), len(policy.steps) - 1
    )
    finished_steps: list[Step] = []
    for position, step in enumerate(policy.steps[first:], first + 1):
        title = f"rollout, step {position} of {len(policy.steps)}"
        stages = promotion.set_canary(push_folder, number, step.percent, title, expected=stages).stages
        show(f"{title}: {promotion.describe(stages)}")
        start, measurement = clock(), None
        worse, missing, figures = "", "unmeasured", ""
        while missing and not worse and clock() < start + step.duration + policy.patience:
            wait(min(policy.interval, max(start + step.duration - clock(), _SHORTEST_WAIT_SECONDS)))
            if (current := push_folder.state()).stages != stages:
                raise promotion.make_conflict_error(stages, current)
            elapsed = clock() - start
            try:
                measurement = measure(stable, number, start)
            except MachineError as error:
                missing, figures = error.headline, "no metrics"
            else:
                worse, missing = judge(measurement, policy, complete=elapsed >= step.duration)
                figures = describe(measurement)
            show(f"  {elapsed:.0f} s: {figures}; {worse or missing or 'no worse than the stable version'}")
        finished_steps.append(Step(step.percent, clock() - start, measurement))
        if worse or missing:
            reason = f"rollout at {step.percent:g} %: {worse or f'not judged: {missing}'}"
            change = promotion.stop(push_folder, reason, expected=stages).history[-1]
            return Outcome("rolled back" if worse else "not judged", number, stable, change, tuple(finished_steps))
    reason = f"rollout: {figures}"
    change = promotion.promote(push_folder, number, reason, expected=stages).history[-1]
    return Outcome("promoted", number, stable, change, tuple(finished_steps))


def judge(measurement: Measurement, policy: CanaryConfig, *, complete: bool) -> tuple[str, str]:
    """Compare the canary with the stable version.

    Args:
      measurement: Requests and predictions of both versions since the beginning of the step.
      policy: Bounds, and the minimum number of requests.
      complete: Whether the duration of the step is over.

    Returns:
      Two texts: how the canary is worse than the stable version, and what the step still waits for. A text is empty if
      the canary is not worse, or if nothing is missing.
    """
    stable, canary, predictions = measurement.stable, measurement.canary, measurement.predictions
    has_enough_requests = canary.requests >= policy.least_requests
    error_share = canary.error_share if complete and has_enough_requests else _compute_lower_limit(canary)
    worse, missing = [], []
    if error_share > stable.error_share + policy.max_errors:
        worse.append(
            f"{canary.error_share:.2%} of {canary.requests:.0f} requests failed, but only {stable.error_share:.2%} of "
            f"the stable version's {stable.requests:.0f}"
        )
    if canary.latency is None or stable.latency is None:
        missing.append("the latency of both")
    elif complete and has_enough_requests and canary.latency > policy.max_latency * stable.latency + _LATENCY_SECONDS:
        worse.append(f"latency {_format_latency(canary)}, the stable version's {_format_latency(stable)}")
    if predictions is not None:
        if min(predictions.canary, predictions.stable) < policy.least_requests:
            missing.append(f"{policy.least_requests} logged predictions of each")
        else:
            worse += [
                f"output {output.name} differs by {output.difference:.3f} (bound {policy.max_difference:g})"
                for output in predictions.outputs
                if output.difference >= policy.max_difference and output.p_value < _SIGNIFICANCE
            ]
    if not has_enough_requests:
        missing.append(f"{policy.least_requests} requests to the canary")
    if not complete:
        missing.append("the end of the step's time")
    return "; ".join(worse), f"waits for {', '.join(missing)}" if missing else ""


def describe(measurement: Measurement) -> str:
    """Return a one-line description of a measurement, with the output that differs most."""
    canary, stable = (
        f"{traffic.requests:.0f} requests, {traffic.error_share:.2%} failed, {_format_latency(traffic)}"
        for traffic in (measurement.canary, measurement.stable)
    )
    predictions = measurement.predictions
    log_counts = f"; {predictions.canary} and {predictions.stable} logged" if predictions else ""
    outputs = predictions.outputs[:1] if predictions else ()
    difference = "".join(f", {output.name} differs by {output.difference:.3f}" for output in outputs)
    return f"canary {canary}; stable {stable}{log_counts}{difference}"


def _compute_lower_limit(traffic: Traffic) -> float:
    """Return the lower Clopper-Pearson confidence limit of the share of failed requests."""
    failed = min(traffic.errors, traffic.requests)
    return float(stats.beta.ppf(_LIMIT_ERROR, failed, traffic.requests - failed + 1)) if failed > 0 else 0.0


def _format_latency(traffic: Traffic) -> str:
    return "no latency" if traffic.latency is None else f"{traffic.latency * 1e3:.1f} ms"
