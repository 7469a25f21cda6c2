"""Tests of the training benchmark: the figures of its variants, and the variants on a few rows and steps."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measure, training
from benchmarks.measure import Measurement, Spread, Work
from benchmarks.training import Bench, Tasks
from components.compat.tensorflow import ENVIRONMENT

ROWS = 1_000


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "scratch").mkdir()
    return Bench(data=tmp_path / "data", scratch=tmp_path / "scratch", rounds=1, rows=ROWS)


def task(core: int, user: float, system: float = 0.0, mb: float = 100.0) -> dict[str, float]:
    return {"core": core, "user": user, "system": system, "mb": mb}


def get_medians(facts: dict[str, object]) -> dict[str, float]:
    return {name: fact.median for name, fact in facts.items() if isinstance(fact, Spread)}


def test_core_is_charged_for_all_of_its_tasks() -> None:
    by_name = {"chief-0": task(0, 0.5), "ps-0": task(0, 1, 1, 300.0), "worker-0": task(0, 4), "worker-1": task(1, 6)}
    tasks = Tasks(10.0, by_name, examples=1_000)
    assert tasks.busiest == 6.5
    assert tasks.work == Work(rows=1_000, wall=10.0, cpu=12.5, peak_mb=300.0)


def test_cost_of_the_input_is_the_time_over_a_constant_batch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Sequence[str]] = []
    sides: list[str] = []

    def run(command: list[str], log: Path) -> Measurement:
        setting = [part for part in command if part.startswith("training.cache")]
        sides.append(" ".join([command[4], command[6], *setting]))
        real = {"ours": 5.0 if "training.cache=none" in command else 2.2, "tfrecords": 7.0, "stock": 8.0}[command[4]]
        log.write_text("noise\n" + json.dumps({"constant": 2.0, "real": real}) + "\n")
        return Measurement(wall=1.0, cpu=99.0, peak_mb=1.0)

    monkeypatch.setattr(measure, "run", run)
    monkeypatch.setattr(training, "_call", called.append)
    measured, facts = training.input_(bench)
    assert [command[2] for command in called if command[1] == "-m"] == ["data.taxi", "data.clicks"]
    assert sides[4:] == [
        "ours configs/clicks.yaml training.cache=memory",
        "ours configs/clicks.yaml training.cache=none",
        "tfrecords configs/clicks.yaml training.cache=none",
        "stock configs/clicks.yaml",
    ]
    names = ["taxi, ours", "taxi, ours, from files", "taxi, TFRecords, from files", "taxi, stock TFX"]
    assert list(measured)[:4] == names
    medians = get_medians(facts)
    assert medians["taxi, ours: input over a constant batch (wanted: at most 0.15)"] == 0.1
    assert medians["clicks, ours: input over a constant batch (wanted: at most 0.2)"] == 0.1
    assert medians["taxi, ours, from files: input over a constant batch (wanted: at most 0.25)"] == 1.5
    assert medians["taxi, stock TFX: input's share of a step"] == 0.75
    assert medians["clicks, ours: CPU-ms of a step on a constant batch"] == pytest.approx(
        2000 / training._STEPS, abs=1e-3
    )


def test_speed_up_is_computed_from_the_busier_core(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, int, int]] = []

    def run(command: list[str], log: Path) -> Measurement:
        *_, steps, config = command
        training_config = json.loads(config)
        kind = training_config.get("strategy", {}).get("kind", "single")
        runs.append((kind, training_config["batch_size"], int(steps)))
        by_name: dict[str, Any] = {
            "single": {"single": task(0, 9, 1)},
            "parameter_server": {"ps-0": task(0, 1), "worker-0": task(0, 3), "worker-1": task(1, 5)},
            "multi_worker": {"worker-0": task(0, 8), "worker-1": task(1, 6)},
        }[kind]
        log.write_text("noise\n" + json.dumps({"wall": 20.0 if kind == "single" else 16.0, "tasks": by_name}) + "\n")
        return Measurement(wall=99.0, cpu=99.0, peak_mb=99.0)

    monkeypatch.setattr(measure, "run", run)
    monkeypatch.setattr(training, "_call", lambda command: None)
    measured, facts = training.scaling(bench)
    # All kinds process the same number of examples, and a step of a worker has the same size.
    assert runs[:3] == [("single", 8_192, 40), ("parameter_server", 8_192, 40), ("multi_worker", 16_384, 20)]
    assert len(runs) == len(measured) == 6
    medians = get_medians(facts)
    assert medians["batch 8,192, parameter_server: speed-up by CPU of the busier core (wanted: at least 1.5)"] == 2.0
    assert medians["batch 8,192, multi_worker: speed-up by CPU of the busier core (wanted: at least 1.25)"] == 1.25
    assert medians["batch 1,024, multi_worker: CPU of all tasks / one process"] == 1.4
    assert medians["batch 1,024, parameter_server: speed-up by wall time"] == 1.25
    assert facts["batch 8,192, one process: CPU-ms per step"] == "single 250 (25 of them in the kernel)"


@pytest.mark.slow
def test_all_inputs_feed_the_same_steps(bench: Bench) -> None:
    assignments = bench.run_transform("taxi")
    turns: list[training.Turns] = []
    for side, *setting in training._INPUTS.values():
        measurement = bench.input_side(side, 1, [*assignments, *setting, "training.steps_per_execution=1"], turns)(0)
        assert measurement.cpu > turns[-1].real + turns[-1].constant
    assert all(turn.constant > 0 < turn.real for turn in turns)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", *training._CLUSTERS])
def test_every_cluster_reports_the_cost_per_task(kind: str, bench: Bench) -> None:
    training._call([sys.executable, "-m", "benchmarks.training_program", "examples", str(bench.scratch / "examples")])
    tasks: list[Tasks] = []
    strategy = {"kind": kind}
    side = bench.cluster_side({"batch_size": 64, "steps_per_execution": 1, "strategy": strategy}, 256, tasks)
    assert side(0).work == tasks[0].work
    workers = {"none": {"single"}, "multi_worker": {"worker-0", "worker-1"}}
    servers = {"chief-0", "ps-0", "ps-1", "worker-0", "worker-1"}
    assert set(tasks[0].by_name) == workers.get(kind, servers)
    assert tasks[0].busiest > 0
