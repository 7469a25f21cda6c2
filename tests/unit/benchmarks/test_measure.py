"""Tests of the harness of the benchmarks: measuring real processes, taking turns, ratios and records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmarks import measure
from benchmarks.measure import Measurement, Spread, Tree, Work
from tests.support.data.tolerances import float64_sum

BURN = """
import subprocess, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def child(seconds):
    subprocess.run([sys.executable, "-c", f"import time\\nwhile time.process_time() < {seconds}: pass"], check=True)
"""
TELL = BURN + "from benchmarks import measure\n"
ROUNDING = 0.02


def run(script: str, folder: Path, rows: int | None = None) -> Measurement:
    return measure.run([sys.executable, "-c", script], folder / "log", rows)


def create_measurement(wall: float, work: Work | None = None) -> Measurement:
    return Measurement(wall=wall, cpu=2 * wall, peak_mb=100.0, work=work)


def side(wall: float, numbers: list[tuple[float, int]]) -> Callable[[int], Measurement]:
    def run_round(number: int) -> Measurement:
        numbers.append((wall, number))
        return create_measurement(wall + number)

    return run_round


def test_cpu_seconds_include_the_children_of_the_command(tmp_path: Path) -> None:
    measurement = run(BURN + "burn(0.2); child(0.3)", tmp_path)
    assert measurement.cpu >= 0.5 - ROUNDING
    assert measurement.work is None
    # The CPU time of earlier commands must not count again.
    assert run("pass", tmp_path).cpu < measurement.cpu


def test_memory_of_a_process_tree_is_summed() -> None:
    # Both processes share a standard output, so write the line with a single call.
    hold = "import os; held = bytearray(b'x') * (60 << 20); os.write(1, b'ready\\n'); input()"
    start = f"import subprocess, sys; one = subprocess.Popen([sys.executable, '-c', {hold!r}], stdin=subprocess.PIPE)"
    with psutil.Popen(
        [sys.executable, "-c", f"{start}\n{hold}\none.communicate(b'go')"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        tree = Tree(process)
        tree.sample()
        process.communicate(b"go\n")
    # Two processes hold 60 MiB, in addition to the memory of their interpreters.
    assert 120 << 20 < tree.peak < 240 << 20
    assert tree.cpu > 0
    peak = tree.peak
    tree.sample()
    assert tree.peak == peak


def test_failing_command_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3:.*the last words"):
        run("print('the last words'); raise SystemExit(3)", tmp_path)


def test_measured_work_excludes_the_set_up(tmp_path: Path) -> None:
    measurement = run(TELL + "burn(0.4)\nmeasure.report(lambda: (burn(0.2), child(0.1)))", tmp_path, rows=10)
    assert measurement.work
    assert measurement.work.rows == 10
    assert measurement.work.cpu >= 0.3 - ROUNDING
    assert measurement.cpu - measurement.work.cpu >= 0.4 - ROUNDING
    assert measurement.wall >= measurement.work.wall > 0
    assert measurement.work.cpu_per_row == float64_sum(4).approx(measurement.work.cpu * 1e5)


def test_peak_memory_is_reported_after_the_memory_is_freed(tmp_path: Path) -> None:
    small = run(TELL + "measure.report(lambda: None)", tmp_path, rows=1)
    # The memory of the parent must not count, although the kernel's ru_maxrss would include it.
    parent_memory = bytearray(b"x") * (200 << 20)
    large = run(TELL + "measure.report(lambda: len(bytearray(b'x') * (80 << 20)))", tmp_path, rows=1)
    assert small.work
    assert large.work
    assert 80 <= large.work.peak_mb - small.work.peak_mb + 1 < len(parent_memory) >> 20


def test_work_is_parsed_among_other_lines(tmp_path: Path) -> None:
    script = TELL + "measure.report(lambda: None); print('{}'); print('[1]'); print('a worker says goodbye')"
    assert run(script, tmp_path, rows=1).work


@pytest.mark.parametrize("printed", ["", "{}", '{"wall": 1}', "[1, 2]"])
def test_program_without_a_measurement_is_an_error(printed: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="printed no measurement"):
        run(f"print({printed!r})", tmp_path, rows=1)


def test_variants_take_turns_and_warm_up_does_not_count() -> None:
    numbers: list[tuple[float, int]] = []
    runs_by_side = measure.in_turns({"a": side(10, numbers), "b": side(20, numbers)}, rounds=2, warm_up=1)
    assert numbers == [(10, -1), (20, -1), (10, 0), (20, 0), (10, 1), (20, 1)]
    assert {name: [turn.wall for turn in turns] for name, turns in runs_by_side.items()} == {
        "a": [10, 11],
        "b": [20, 21],
    }


def test_five_rounds_are_the_default() -> None:
    assert len(measure.in_turns({"a": side(1, [])})["a"]) == 5


def test_ratios_are_taken_round_by_round() -> None:
    # The third round is slow for both variants. The ratio of the medians would be 2 / 1.5.
    over = [create_measurement(wall) for wall in (2, 2, 30)]
    under = [create_measurement(wall) for wall in (1, 1.5, 10)]
    assert measure.ratio(over, under) == Spread(median=2.0, least=1.3333, greatest=3.0)
    assert measure.ratio(over, under, "cpu").median == 2.0
    with pytest.raises(ValueError, match="shorter"):
        measure.ratio(over, under[:2])


def test_figures_of_the_work_are_named_with_a_dot() -> None:
    runs = [create_measurement(5, Work(rows=1000, wall=2.0, cpu=3.0, peak_mb=50.0))]
    assert measure.figures(runs, "wall") == [5.0]
    assert measure.figures(runs, "work.wall") == [2.0]
    assert measure.figures(runs, "work.cpu_per_row") == [3000.0]


def test_spreads_are_rounded_to_significant_digits() -> None:
    assert str(Spread.of([28.14, 30.0, 29.26])) == "29.3 (28.1 to 30.0)"
    assert str(Spread.of([0.5964, 0.6])) == "0.598 (0.596 to 0.600)"


def test_record_is_written_as_json_and_markdown(tmp_path: Path) -> None:
    work = Work(rows=1000, wall=2.0, cpu=3.0, peak_mb=50.0)
    runs = {
        "stock": [create_measurement(1), create_measurement(3), create_measurement(2)],
        "ours": [create_measurement(5, work)],
    }
    facts = {"time": Spread.of([1.0, 2.0, 4.0]), "nodes": "all"}
    text = measure.record("speed", "python -m speed", runs, facts, tmp_path)
    name = f"speed_py{sys.version_info.major}{sys.version_info.minor}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.json", f"{name}.md"]
    assert (tmp_path / f"{name}.md").read_text() == text
    lines = text.splitlines()
    assert lines[0].startswith("Made by `python -m speed`; ")
    assert "pyarrow " in lines[0]
    assert lines[0].endswith("median of 3 (least to greatest).")
    assert "| stock | 2.00 (1.00 to 3.00) | 4.00 (2.00 to 6.00) | 100 (100 to 100) |  |  |  |  |" in lines
    assert any(line.startswith("| ours |") and "3000.0 (3000.0 to 3000.0)" in line for line in lines)
    assert lines[-2:] == ["- time: 2.000 (1.000 to 4.000)", "- nodes: all"]
    content = json.loads((tmp_path / f"{name}.json").read_text())
    assert content["facts"] == {"time": {"median": 2.0, "least": 1.0, "greatest": 4.0}, "nodes": "all"}
    assert content["runs"]["ours"][0]["work"] == {"rows": 1000, "wall": 2.0, "cpu": 3.0, "peak_mb": 50.0}
    assert [stock_run["wall"] for stock_run in content["runs"]["stock"]] == [1, 3, 2]
    assert {"cores", "python", "memory_gb", "libraries"} == content["machine"].keys()


def test_variants_without_work_get_a_narrow_table(tmp_path: Path) -> None:
    text = measure.record("speed", "python -m speed", {"a": [create_measurement(1)]}, {}, tmp_path)
    assert "| | wall s | CPU s | peak MiB |\n|---|---|---|---|\n| a |" in text
