"""Tests that the protocol in pipeline/core/runs.pml holds in every interleaving and that the code follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core import run_record
from tests.support.runs.stepped import verify
from tests.support.servers.in_fork_server import in_child, main_of

MODEL = Path(run_record.__file__).with_name("runs.pml")

pytestmark = pytest.mark.needs("spin")


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("-DLISTS=1", "-DRESUMES=0"), marks=pytest.mark.slow),
        pytest.param(("-DCRASHES=2", "-DRESUMES=0"), marks=pytest.mark.slow),
    ],
)
def test_protocol_holds_in_every_interleaving(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "errors: 0" in verify(tmp_path, MODEL, *options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-DGC_WITHOUT_LOCK",), id="gc without a lock"),
        pytest.param(("-DLATE_NODES",), id="a resumed run that does not wait for the nodes of the killed one"),
        pytest.param(("-DCANCEL_FIRST", "-DCRASHES=2", "-DRESUMES=0"), id="an execution closed before its clean-up"),
        pytest.param(("-DSTALE_LIST", "-DLISTS=1", "-DRESUMES=0"), id="a record read without the lock"),
    ],
)
def test_search_finds_the_error_of_a_weaker_protocol(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "assertion violated" in verify(tmp_path, MODEL, *options)


def test_code_follows_the_steps_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    # With the seeds 36 and 42, a node is killed after it has begun to write.
    seeds = {"-DCRASHES=2": [*range(10), 36, 42], "-DCRASHES=0 -DLATE_GC": [0, 1, 2]}
    steps = in_child(tmp_path / "test.log", main_of, "stepped_runs", tmp_path / "runs", seeds)
    assert {"cached", "publish", "clear", "cancel", "return", "mark", "delete", "crash"} <= set(steps)
