"""The three levels of the tests: each test is in exactly one, which its marks and its folder decide.

docs/development.md describes the levels. `--levels test,rest` of pytest selects them; without it all tests run.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

COMMANDS = {
    "test": ("make test", "lint, unit and contract tests, one run per main path"),
    "rest": ("make test-rest", "long tests, whole runs, orchestrators, programs beside .venv"),
    "slow": ("make test-slow", "experiments, real Flink, Spark, Prism and Kubernetes"),
}
"""Level → the command that runs it, and what it contains."""

_SLOW = {"cluster", "engine", "slow"}
_REST = {"extended", "needs", "orchestrator"}
_EXTENDED_FOLDERS = ("e2e", "faults")
_MAIN_PATHS = "test_main_paths"
_COUNTS = pytest.StashKey[Counter[str]]()
_SENT = "tests_by_level"


def level_of(item: pytest.Item) -> str:
    """Return the level of a test, a key of COMMANDS."""
    marks = {mark.name for mark in item.iter_markers()}
    if marks & _SLOW:
        return "slow"
    is_whole_run = item.path.parent.name in _EXTENDED_FOLDERS and item.path.stem != _MAIN_PATHS
    return "rest" if marks & _REST or is_whole_run else "test"


def add_option(parser: pytest.Parser) -> None:
    """Add `--levels` to pytest's command line."""
    parser.addoption("--levels", default=",".join(COMMANDS), help=f"which tests to run, of {', '.join(COMMANDS)}")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other levels, and count the tests by level.

    Raises:
      pytest.UsageError: If `--levels` names an unknown level.
    """
    selected = config.getoption("levels").split(",")
    if unknown := set(selected) - set(COMMANDS):
        raise pytest.UsageError(f"--levels: expected some of {', '.join(COMMANDS)}, received {', '.join(unknown)}")
    levels = [level_of(item) for item in items]
    config.stash[_COUNTS] = Counter(levels)
    config.hook.pytest_deselected(
        items=[item for item, level in zip(items, levels, strict=True) if level not in selected]
    )
    items[:] = [item for item, level in zip(items, levels, strict=True) if level in selected]


def send_counts(config: pytest.Config) -> None:
    """Hand the counts of a worker of pytest-xdist to the process that writes the summary."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[_SENT] = dict(config.stash.get(_COUNTS, {}))


def receive_counts(config: pytest.Config, worker: Any) -> None:
    """Take the counts of a worker. All workers collect the same tests."""
    if counts := getattr(worker, "workeroutput", {}).get(_SENT):
        config.stash[_COUNTS] = Counter(counts)


def write_summary(reporter: pytest.TerminalReporter) -> None:
    """Write how many of the collected tests were run, and which command runs the others."""
    counts = reporter.config.stash.get(_COUNTS, Counter())
    selected = reporter.config.getoption("levels").split(",")
    if not counts or set(counts) <= set(selected):
        return
    reporter.section("levels of tests")
    for level, (command, content) in COMMANDS.items():
        state = "run here" if level in selected else "not here"
        reporter.line(f"{counts[level]:6,} {state}  {command:14}  {content}")
