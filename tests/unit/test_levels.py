"""Tests that every test belongs to one level, and that a run reports the omitted tests and how to run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs.command import ROOT

CONFTEST = """
import pytest
from tests.support import levels

def pytest_addoption(parser): levels.add_option(parser)
def pytest_collection_modifyitems(config, items): levels.select(config, items)
def pytest_sessionfinish(session): levels.send_counts(session.config)
@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node): levels.receive_counts(node.config, node)
def pytest_terminal_summary(terminalreporter): levels.write_summary(terminalreporter)
"""
UNIT = """
import pytest
def test_plain(): pass
@pytest.mark.extended
def test_long(): pass
@pytest.mark.needs("haproxy")
def test_with_program(): pass
@pytest.mark.orchestrator
@pytest.mark.slow
def test_experiment(): pass
@pytest.mark.parametrize("engine", [1, pytest.param(2, marks=pytest.mark.engine)])
def test_engines(engine): pass
"""
NAMES = {
    "test": {"test_plain", "test_engines[1]", "test_main"},
    "rest": {"test_long", "test_with_program", "test_run"},
    "slow": {"test_experiment", "test_engines[2]"},
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with tests of every level."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = extended\n  needs\n  orchestrator\n  slow\n  engine\n")
    (folder / "e2e").mkdir()
    (folder / "test_unit.py").write_text(UNIT)
    (folder / "e2e" / "test_main_paths.py").write_text("def test_main(): pass")
    (folder / "e2e" / "test_taxi.py").write_text("def test_run(): pass")
    return folder


def run(suite: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest on the suite in a new process, and return the exit code and the output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    process = subprocess.run(line, cwd=suite, env=environment, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout + process.stderr


@pytest.mark.parametrize("level", NAMES)
def test_level_runs_its_tests_and_names_the_commands_of_other_levels(suite: Path, level: str) -> None:
    code, output = run(suite, "--levels", level)
    passed = {line.split("::")[1].split()[0] for line in output.splitlines() if " PASSED" in line}
    assert (code, passed) == (0, NAMES[level]), output
    for name, tests in NAMES.items():
        assert f"{len(tests):6} {'run here' if name == level else 'not here'}  make test" in output


@pytest.mark.extended
def test_counts_include_the_tests_of_xdist_workers(suite: Path) -> None:
    code, output = run(suite, "--levels", "test,rest", "-n", "1")
    assert code == 0, output
    assert "     2 not here  make test-slow" in output


def test_every_test_runs_without_the_option(suite: Path) -> None:
    code, output = run(suite)
    assert (code, "8 passed" in output, "levels of tests" in output) == (0, True, False)


def test_unknown_level_is_rejected(suite: Path) -> None:
    code, output = run(suite, "--levels", "fast")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "expected some of test, rest, slow, received fast" in output
