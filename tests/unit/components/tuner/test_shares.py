"""Tests that the cores, the GPUs and the memory of a machine are divided among trials."""

from __future__ import annotations

import os

import pytest

from components.tuner import shares
from components.tuner.config import TuneConfig
from components.tuner.shares import Shares

GIB = 1 << 30


def divide(
    patch: pytest.MonkeyPatch, gib: float, cores: int = 8, gpus: int = 0, example_gib: float = 0.0, **tune: int
) -> Shares:
    patch.setattr(shares, "memory", lambda: (64 * GIB, int(gib * GIB)))
    patch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    patch.setattr(shares, "visible_gpus", lambda: [str(number) for number in range(gpus)])
    config = TuneConfig.model_validate({"learning_rate": {"log": [0.001, 0.1]}, "trials": 20, **tune})
    return Shares(config, int(example_gib * GIB))


def test_number_of_trials_is_limited_by_memory_until_a_setting_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert divide(monkeypatch, 30).count == 8, "one per core"
    assert divide(monkeypatch, 30, trials=3).count == 3
    assert divide(monkeypatch, 5.5).count == 5
    assert divide(monkeypatch, 30, example_gib=2).count == 4, "7 GiB each, for three copies of the examples"
    assert divide(monkeypatch, 0.1).count == 1
    assert divide(monkeypatch, 5.5, parallel=12).count == 12
    assert divide(monkeypatch, 30, gpus=2).count == 2


def test_measured_peak_replaces_the_estimate_and_only_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = divide(monkeypatch, 5.5)
    machine.measure(GIB // 2)
    assert machine.count == 8, "a trial needs 0.55 GiB with the reserve, so ten would fit"
    machine.measure(2 * GIB)
    assert machine.count == 2
    machine.measure(GIB)
    assert machine.count == 2
    fixed = divide(monkeypatch, 5.5, parallel=4)
    fixed.measure(20 * GIB)
    assert fixed.count == 4


def test_killed_trial_reduces_the_number_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = divide(monkeypatch, 30, cores=3)
    counts = []
    for _ in range(3):
        machine.reduce()
        counts.append(machine.count)
    assert counts == [2, 1, 1]
    machine.measure(GIB)
    assert machine.count == 1, "a low measurement does not raise it again"
    fixed = divide(monkeypatch, 30, parallel=4)
    fixed.reduce()
    assert fixed.count == 4


def test_cores_are_divided_without_remainder(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = divide(monkeypatch, 30, parallel=3)
    cores = [machine.share(number).cores for number in range(machine.count)]
    assert sorted(core for share in cores for core in share) == list(range(8))
    assert {len(share) for share in cores} == {2, 3}
    crowded = divide(monkeypatch, 30, cores=2, parallel=3)
    assert [crowded.share(number).cores for number in range(3)] == [{0}, {1}, {0}]
    with_gpus = divide(monkeypatch, 30, gpus=2, parallel=3)
    assert [with_gpus.share(number).gpu for number in range(3)] == ["0", "1", "0"]
    assert divide(monkeypatch, 30, gpus=2, parallel=1).share(0).gpu is None, "a single trial may use all GPUs"
