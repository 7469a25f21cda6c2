"""Tests of the calculation for a thousand workers: figures are verified in other ways, and the page shows them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import measure, scale, scale_model
from benchmarks.measure import Measurement, Spread, Work
from benchmarks.scale_model import (
    BATCH,
    LARGE,
    NETWORK,
    SERVER_CORES,
    SMALL,
    TABLES,
    Dlrm,
    Plan,
    Shares,
    SliceMetrics,
    transfer_seconds,
)
from benchmarks.training import Bench, Tasks
from components.compat.tensorflow import ENVIRONMENT
from tests.support.data.tolerances import float64_sum

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "measurements" / "scale.md"
MEASURED = SliceMetrics(write=100, read=300, step=300, spread=0.05, worker=300, server=90, chief=1)
PLAN = Plan(
    label="a plan",
    step=0.3,
    network=0.0,
    slowest=1.0,
    updates=1,
    save=10.0,
    restart=100.0,
    together=1_000,
    alone=0,
)


@pytest.mark.extended
def test_page_shows_the_output_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    scale.main([])
    printed = capsys.readouterr().out.strip().split("\n\n")
    assert len(printed) == 8
    page = PAGE.read_text(encoding="utf-8")
    assert [table for table in printed if f"\n{table}\n" not in page] == []


def test_kernels_are_placed_on_the_server_with_the_fewest_bytes() -> None:
    model = Dlrm(SMALL)
    alone, several = scale_model.by_server(model, 1), scale_model.by_server(model, 5)
    assert alone.sum() == float64_sum(100).approx(several.sum()) == float64_sum(100).approx(model.beside_servers())
    # The largest kernel, 512 x 256 with a bias of 256, is in both networks, and is pulled and pushed.
    assert several[0] == pytest.approx(
        2 * 4 * 513 * 256 + (model.beside_servers() - 2 * model.dense) / 5, rel=0.05, abs=1
    )


def test_simulated_queue_reaches_its_bounds() -> None:
    model = Dlrm(SMALL)
    even = dataclasses.replace(MEASURED, spread=1e-9)
    # A single worker never waits: its time is the sum of its computation and its messages.
    message_seconds = max(transfer_seconds(model.beside_servers(), NETWORK), 0.09 / SERVER_CORES)
    assert scale_model.queue(model, even, 1, 1, 0.0) == pytest.approx(1 / (0.3 + message_seconds), abs=1e-6)
    # With 500 workers, the only server always has messages to process.
    crowd = scale_model.rates_beside_servers(model, even, 500, 1)
    assert crowd.limit == "busiest ps"
    assert crowd.simulated == pytest.approx(crowd.bounds["busiest ps"], rel=0.05, abs=1e-3)
    assert crowd.simulated <= 500 / (0.3 + message_seconds)
    # Half of the workers at half the speed take half as many steps.
    halved = scale_model.queue(model, dataclasses.replace(even, server=0.0), 4, 1_000, 0.5)
    assert halved == pytest.approx(0.75 * scale_model.queue(model, even, 4, 1_000, 0.0), rel=0.1, abs=1e-3)


def test_synchronous_workers_wait_for_the_slowest() -> None:
    even = scale_model.rates_in_step(0.0, dataclasses.replace(MEASURED, spread=1e-9), 100)
    assert even.bounds[even.limit] == pytest.approx(100 / 0.3, abs=1e-4)
    assert even.simulated == pytest.approx(100 / 0.3, abs=1e-4)
    assert even.straggling == pytest.approx(50 / 0.3, abs=1e-4)
    spread = scale_model.rates_in_step(1e9, MEASURED, 100)
    assert spread.simulated == pytest.approx(100 / (0.3 * scale_model.slowest(0.05, 100) + 0.32), rel=0.005, abs=1e-3)
    assert spread.simulated == pytest.approx(spread.bounds[spread.limit], rel=0.005, abs=1e-3)


@pytest.mark.parametrize("rows", [80_000, 1_000_000])
def test_number_of_unique_rows_equals_a_simulation(rows: int) -> None:
    random = np.random.default_rng(0)
    unique_counts = [len(np.unique(random.integers(0, rows // TABLES, BATCH))) for _ in range(TABLES)]
    assert Dlrm(rows).unique == pytest.approx(sum(unique_counts), rel=0.01, abs=1)


def test_bytes_of_the_networks_follow_from_their_layers() -> None:
    below, above = 13 * 512 + 512 + 512 * 256 + 256, 256 * 128 + 128
    assert Dlrm(1).dense == 4 * (below + above + 128 * 32 + 32 + 68 * 512 + 512 + 512 * 256 + 256 + above + 128 + 1)


def test_traffic_per_worker_grows_with_synchronous_workers_only() -> None:
    model = Dlrm(SMALL)
    alone = model.in_step(1)
    assert alone == 0
    assert model.in_step(3) - model.in_step(2) == float64_sum(8, largest=1e9).approx(8_192 * 8 * 136 + model.dense / 3)
    # The traffic is less than twice the looked-up rows and the networks.
    assert 8_192 * 8 * 136 < model.beside_servers() < 2 * (8_192 * 8 * 136 + model.dense)


def test_scarcest_resource_sets_the_number_of_servers() -> None:
    needed = scale_model.servers(Dlrm(LARGE), MEASURED)
    # Memory: 384 GB on machines of 64 GB. Cores: 1,000 workers with 90 of every 300 ms, on 8 of 16 cores.
    assert (needed["memory"], needed["cores"]) == (7, 38)
    assert scale_model.beside_servers(Dlrm(LARGE), MEASURED).together == max(needed.values()) + 1
    faster = dataclasses.replace(MEASURED, worker=30)
    assert scale_model.servers(Dlrm(LARGE), faster)["network"] >= 9 * needed["network"]
    # The kernel of 512 x 256 and its bias are sent both ways, with any number of servers.
    assert scale_model.busiest(Dlrm(SMALL), MEASURED, 10**9) == pytest.approx(
        1_000 * 2 * 4 * 513 * 256 / 0.3 * 8e-9, rel=1e-6, abs=1e-6
    )


def test_slowest_of_many_normal_times_equals_the_known_value() -> None:
    assert scale_model.slowest(0.0, 1_000) == 1.0
    # The largest of 1,000 standard normal draws is 3.24 on average.
    assert scale_model.slowest(1e-3, 1_000) == pytest.approx(1.00324, abs=1e-4)


def test_best_checkpoint_interval_loses_the_least_work() -> None:
    failures = 0.01
    best = PLAN.interval(failures)
    # sqrt(2 · 10 s · 8,640 s)
    assert best == pytest.approx(415.7, abs=0.1)
    assert PLAN.every_steps(failures) == 1_400

    def useful(interval: float) -> float:
        class Fixed(Plan):
            def interval(self, failures: float) -> float:
                return interval

        plan, random = Fixed(**dataclasses.asdict(PLAN)), np.random.default_rng(0)
        return sum(scale_model.day(plan, failures, random).useful for _ in range(200)) / 200

    assert useful(best) > max(useful(best / 4), useful(best * 4))


def test_day_without_failures_consists_of_work_and_waiting() -> None:
    shares = scale_model.day(dataclasses.replace(PLAN, save=1e-6), 1e-12, np.random.default_rng(0))
    assert shares.useful == pytest.approx(1.0, abs=1e-6)
    waiting = dataclasses.replace(PLAN, save=1e-6, network=0.15, slowest=1.5)
    assert scale_model.day(waiting, 1e-12, np.random.default_rng(0)).useful == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("failures", [1e-3, 0.1, 5.0])
def test_shares_of_a_day_add_up_to_1(failures: float) -> None:
    plan, random = dataclasses.replace(PLAN, network=0.1, slowest=1.2, alone=10), np.random.default_rng(0)
    for _ in range(50):
        shares = dataclasses.astuple(scale_model.day(plan, failures, random))
        assert sum(shares) == pytest.approx(1.0, abs=1e-9)
        assert min(shares[:3]) >= 0


def test_worker_that_restarts_alone_only_loses_its_time() -> None:
    plan = dataclasses.replace(PLAN, together=1, alone=100_000, save=1e-6)
    random = np.random.default_rng(0)
    days = [scale_model.day(plan, 1e-4, random) for _ in range(500)]
    # Of a thousand workers, ten a day lose 100 s.
    assert sum(day.restarting for day in days) / 500 == pytest.approx(10 * 100 / 1_000 / 86_400, rel=0.1, abs=1e-7)
    assert Shares(*np.mean([dataclasses.astuple(day) for day in days], axis=0)).useful > 0.9999


def test_measurements_are_read_from_the_files_of_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], _log: Path, rows: int | None = None) -> Measurement:
        side, folder = command[3], Path(command[4])
        if side == "steps":
            (folder / scale.STEPS_FILE).write_text(json.dumps([1.0, np.e**2]))
        wall = {"save": 3.84, "restore": 1.92}.get(side, 1.0)
        cpu = 6.0 if side == "steps" else 1.0
        return Measurement(wall=9.0, cpu=9.0, peak_mb=1.0, work=Work(rows=rows or 1, wall=wall, cpu=cpu, peak_mb=1.0))

    def cluster(self: Bench, training: object, examples: int, tasks: list[Tasks]) -> object:
        def run_round(_number: int) -> Measurement:
            ms = {"chief-0": 10, "ps-0": 25, "ps-1": 75, "worker-0": 120, "worker-1": 180}
            steps = examples // BATCH
            by_name = {
                name: {"core": 0, "user": milliseconds * steps / 1e3, "system": 0.0, "mb": 1.0}
                for name, milliseconds in ms.items()
            }
            tasks.append(Tasks(1.0, by_name, examples))
            return Measurement(1.0, 1.0, 1.0, tasks[-1].work)

        return run_round

    monkeypatch.setattr(measure, "run", run)
    monkeypatch.setattr(Bench, "cluster_side", cluster)
    monkeypatch.setattr(scale, "ENVIRONMENT", {})
    scale.main(["measure", "--rounds", "1", "--results", str(tmp_path)])
    (record,) = tmp_path.glob("scale_py*.json")
    assert SliceMetrics.load(record) == SliceMetrics(
        write=100.0, read=200.0, step=100.0, spread=1.0, worker=300.0, server=100.0, chief=10.0
    )
    facts = json.loads(record.read_text())["facts"]
    assert all(set(fact) == set(dataclasses.asdict(Spread(0, 0, 0))) for fact in facts.values())


@pytest.mark.slow
def test_programs_do_the_requested_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    checkpoint, steps = tmp_path / "checkpoint", tmp_path / "steps"
    for folder in (checkpoint, steps):
        folder.mkdir()
    for side in ("save", "restore"):
        measurement = measure.run(scale._side(side, checkpoint), tmp_path / "log", SMALL)
        assert measurement.work
        assert measurement.work.wall > 0
    written = sum(path.stat().st_size for path in checkpoint.iterdir())
    model = Dlrm(SMALL)
    assert written == pytest.approx(model.checkpoint - 3 * model.dense, rel=1e-3, abs=1)
    assert measure.run(scale._side("steps", steps, 2), tmp_path / "log", 2 * BATCH).work
    assert len(json.loads((steps / scale.STEPS_FILE).read_text())) == 2
