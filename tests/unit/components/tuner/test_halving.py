"""Tests of successive halving against the rule itself, evaluated from scratch after every event of a random search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest

from components.tuner.config import HalvingConfig
from components.tuner.halving import Halving

Event = tuple[str, int, float | None]


def simulate(
    losses: dict[str, list[float | None]], factor: int, workers: int, order: np.random.Generator
) -> list[Event]:
    """Run a search with workers that end in random order; return (trial, rung, loss) in the order of the reports.

    Args:
      losses: Trial → its losses at the rungs.
      factor: See Halving.
      workers: Number of trials at a time.
      order: Chooses which running trial ends next.
    """
    halving = Halving(len(next(iter(losses.values()))), factor)
    new, running, events = iter(losses), [], []
    while True:
        while len(running) < workers:
            chosen = halving.promote() or next(((trial, 0) for trial in new), None)
            chosen = chosen or (None if running else halving.promote(is_final=True))
            if chosen is None:
                break
            assert chosen == expected_choice(events, running, losses, factor)
            running.append(tuple(chosen))
        if not running:
            assert expected_choice(events, running, losses, factor) is None
            return events
        trial, rung = running.pop(int(order.integers(len(running))))
        events.append((trial, rung, losses[trial][rung]))
        halving.report(*events[-1])
        state = json.loads(json.dumps(halving.get_state(), allow_nan=False))
        halving = Halving(halving.last + 1, factor)
        halving.set_state(state)


def expected_choice(
    events: list[Event], running: list[tuple[str, int]], losses: dict[str, list[float | None]], factor: int
) -> tuple[str, int] | None:
    """Choose what to run next by the rule of the paper, from nothing but the history."""
    begun = {(trial, rung) for trial, rung, _ in events} | set(running)
    last = len(next(iter(losses.values()))) - 1

    def ranked(rung: int) -> list[str]:
        reports = [
            (math.inf if is_bad(loss) else loss, at, trial) for at, (trial, r, loss) in enumerate(events) if r == rung
        ]
        return [trial for loss, _, trial in sorted(reports) if loss < math.inf]

    for rung in range(last - 1, -1, -1):
        size = sum(event[1] == rung for event in events)
        for trial in ranked(rung)[: size // factor]:
            if (trial, rung + 1) not in begun:
                return trial, rung + 1
    for trial in losses:
        if (trial, 0) not in begun:
            return trial, 0
    if running or ranked(last):
        return None
    failed = {trial for trial, _, loss in events if is_bad(loss)}
    for rung in range(last - 1, -1, -1):
        for trial in ranked(rung):
            if (trial, rung + 1) not in begun and trial not in failed:
                return trial, rung + 1
    return None


def is_bad(loss: float | None) -> bool:
    return loss is None or not math.isfinite(loss)


def searches() -> Iterator[tuple[int, dict[str, list[float | None]], int, int]]:
    """Yield random searches with ties, failed trials, diverged losses and fewer trials than the factor."""
    random = np.random.default_rng(7)
    for seed in range(120):
        trials, rungs, factor = int(random.integers(1, 30)), int(random.integers(1, 5)), int(random.integers(2, 5))
        # Few distinct losses, so that many are equal.
        table = random.integers(0, 8, (trials, rungs)) / 8
        bad = random.random((trials, rungs)) < 0.15
        values = [math.nan, math.inf, None]
        losses = {
            f"{trial:02d}": [
                values[int(random.integers(3))] if is_failed else float(loss)
                for loss, is_failed in zip(table[trial], bad[trial], strict=True)
            ]
            for trial in range(trials)
        }
        yield seed, losses, factor, int(random.integers(1, 6))


def test_every_choice_follows_the_rule() -> None:
    for seed, losses, factor, workers in searches():
        events = simulate(losses, factor, workers, np.random.default_rng(seed))
        assert len({event[:2] for event in events}) == len(events), "no rung is trained twice"
        assert {trial for trial, rung, _ in events if not rung} == set(losses)
        for trial, rung, loss in events:
            assert loss is losses[trial][rung] or loss == losses[trial][rung]
            assert not rung or not is_bad(losses[trial][rung - 1]), "a diverged trial does not continue"


def test_best_trial_is_compared_in_the_highest_rung() -> None:
    halving = Halving(3, 3)
    for trial, loss in zip("abcdef", (0.5, 0.2, 0.3, math.nan, 0.1, 0.2), strict=True):
        halving.report(trial, 0, loss)
    assert [halving.promote(), halving.promote(), halving.promote()] == [("e", 1), ("b", 1), None]
    assert halving.rank() == ["e", "b", "f", "c", "a"], "equal losses keep the order of their reports"
    halving.report("e", 1, 0.4)
    halving.report("b", 1, math.inf)
    assert halving.rank() == ["e", "f", "c", "a"], "b has diverged"
    assert halving.promote() is None
    assert halving.promote(is_final=True) == ("e", 2)
    halving.report("e", 2, None)
    assert halving.promote(is_final=True) == ("f", 1), "the next best, because the best has failed"
    assert halving.list_losses("e") == [0.1, 0.4, None]


@pytest.mark.parametrize(
    ("steps", "config", "rungs"),
    [
        (900, {}, [100, 300, 900]),
        (1000, {}, [111, 333, 1000]),
        (1000, {"min_steps": 100}, [100, 300, 1000]),
        (1000, {"factor": 4, "min_steps": 10}, [10, 40, 160, 1000]),
        (27, {"min_steps": 1}, [1, 3, 9, 27]),
        (5, {}, [1, 5]),
        (1, {}, [1]),
    ],
)
def test_rungs(steps: int, config: dict[str, int], rungs: list[int]) -> None:
    assert HalvingConfig.model_validate(config).list_rungs(steps) == rungs
