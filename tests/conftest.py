"""Settings of all tests, and fixtures that several folders share.

The settings are one Keras, quiet native logs, no accelerator, and the project's root as the working directory. Where
the rights allow it, tests have mounts of their own, and a network that reaches only this machine.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.compat.imports import speed_up_imports
from tests.support import levels
from tests.support.programs import programs
from tests.support.runs import trainer_runs
from tests.support.runs.trainer_runs import Prepared
from tests.support.servers import private_namespaces
from tests.support.shared import make_once

# Before anything imports TensorFlow, as the nodes' server does it too.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

private_namespaces.enter()
speed_up_imports()
# A shell starts what runs in its background with SIGINT ignored, and so would the processes of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Collecting imports TensorFlow, TFX and Beam: millions of objects, and hardly any garbage.
gc.disable()

ROOT = Path(__file__).parent.parent
os.chdir(ROOT)

_LONGEST_NAME = 100
_FIRST = ("e2e", "faults", "contract", "browser")
"""Folders whose tests are started before all others: a long group that is begun last keeps one core busy alone."""
_LONG = (
    *("test_transform_executor", "test_evaluator_executors", "test_ingest_dirty", "test_ingest_splits"),
    *("test_ingest_executor", "test_forest_learner", "test_ingest_fuzz", "test_serving_check"),
    *("test_input_pipeline", "test_local_runs", "test_tutorial"),
)
"""The longest of the other files, the longest first; they come next."""


def pytest_report_header() -> str | None:
    """Names the programs without which tests are skipped."""
    missing = programs.missing()
    return f"missing programs: {', '.join(missing)}; to install them: {programs.INSTALL}" if missing else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of the tests' levels."""
    levels.add_option(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the wanted levels, and orders them; see _FIRST and _LONG."""
    levels.select(config, items)

    def order(item: pytest.Item) -> tuple[int, int]:
        folder, file = item.path.relative_to(ROOT / "tests").parts[0], item.path.stem
        return [*_FIRST, folder].index(folder), [*_LONG, file].index(file)

    items.sort(key=order)


def pytest_collection_finish() -> None:
    """Prepare the process for the tests as the process from which nodes are forked does it."""
    # Imported late, because the process that starts xdist's workers does not need Beam.
    from components.compat.beam import cache_introspection
    from components.compat.tensorflow import leave_unconverted

    cache_introspection()
    leave_unconverted("components", "tf_keras")
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose program is missing; in CI it fails."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            programs.find(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the number of tests by level to the process that writes the summary."""
    levels.send_counts(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receives the number of tests by level from a worker of pytest-xdist."""
    levels.receive_counts(node.config, node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was skipped and why, the command that installs what is missing, and the commands of other levels."""
    _write_skipped(terminalreporter)
    levels.write_summary(terminalreporter)


def _write_skipped(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if not skipped:
        return
    terminalreporter.section("skipped tests")
    for reason, count in sorted(skipped.items()):
        terminalreporter.line(f"{count:5}  {reason}")
    if missing := programs.missing():
        terminalreporter.line(f"missing programs: {', '.join(missing)}; to install them: {programs.INSTALL}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped: pytest keeps the file, the line and the reason."""
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Side by side, a file's tests stay together, and so do files that declare a shared group."""
    if not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten a parameter in a test's name, which processes exchange: it may have a hundred megabytes."""
    if isinstance(val, bytes | str) and len(val) > _LONGEST_NAME:
        return f"{val[:_LONGEST_NAME]!a}...{len(val)}"
    return None


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Made people up to Transform, for trainings."""
    return make_once(tmp_path_factory, "prepared", trainer_runs.prepare)
