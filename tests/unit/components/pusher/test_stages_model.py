"""Tests of the protocol of stages with the model checker Spin.

Spin searches all interleavings of components/pusher/stages.pml for errors. The Python code is then driven through
simulated runs of the model, and must be in the same state after every step.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.pusher import local_folder, publish, rollout, serving_state
from components.pusher.config import PushConfig
from components.pusher.plan import PushPlan
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.results.version_manifest import Manifest
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.runs import pushed
from tests.support.runs.stepped import Process, simulate, verify

MODEL = Path(publish.__file__).with_name("stages.pml")
STEPS = ("=", "add", "promote", "canary", "save", "files", "remove", "refused", "crash")
PLAN = PushPlan(push=PushConfig.model_validate({"keep": 1, "stage_on_push": "stable"}), model_name="taxi")

pytestmark = pytest.mark.needs("spin")


def test_no_interleaving_serves_a_version_that_does_not_exist(tmp_path: Path) -> None:
    output = verify(tmp_path, MODEL)
    assert "errors: 0" in output
    states = re.search(r"(\S+) states, stored", output)
    assert states
    assert float(states[1]) > 100_000


@pytest.mark.slow
def test_no_interleaving_of_three_pushes_serves_a_version_that_does_not_exist(tmp_path: Path) -> None:
    assert "errors: 0" in verify(tmp_path, MODEL, "-DPUSHES=3", "-DCRASHES=1")


def test_search_finds_the_fault_of_a_protocol_that_ignores_pending_removals(tmp_path: Path) -> None:
    assert "assertion violated" in verify(tmp_path, MODEL, "-DCARELESS")


class SteppedStore:
    """A store whose process waits before every step."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store, self._process = store, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, *arguments: Any) -> tuple[str, int]:
        self._process.wait("add")
        return self._store.add(*arguments)

    def change(self, update: Update) -> State:
        self._process.wait("save")
        return self._store.change(update)

    def remove(self, number: int) -> None:
        self._process.wait("remove")
        self._store.remove(number)


class SteppedFolder(PushFolder):
    def verify(self, number: int) -> Manifest:
        vars(self)["process"].wait("verify")
        return super().verify(number)


class Code:
    """Processes that run the Python code on one push folder, step by step as the model prescribes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._model = folder / "pushed", folder / "model"
        self._folder.mkdir()
        self._model.mkdir()
        (self._model / "saved_model.pb").write_bytes(b"graph")
        self._processes: dict[str, Process] = {}
        self._current = threading.local()
        write = rollout.write

        def wait_and_write(path: str, state: State) -> None:
            self._current.process.wait("files")
            write(path, state)

        monkeypatch.setattr(local_folder.rollout, "write", wait_and_write)

    def make(self, step: str, pid: str, *numbers: str) -> None:
        """Make a step of a process.

        Args:
            step: Name of the step.
            pid: Number of the process in the model.
            numbers: Version, then 1 if the step is refused.
        """
        number = int(numbers[0]) if numbers else 0
        begin = {"add": self._push, "promote": promotion.promote, "canary": self._canary}.get(step)
        if begin:
            work = functools.partial(begin if step == "add" else self._stage, number, begin)
            self._processes[pid] = Process(work)
        is_refused = step == "refused" or numbers[1:] == ("1",)
        expected = "crash" if step == "crash" else "refused" if is_refused else "made"
        self._processes[pid].make("verify" if step in ("promote", "canary") else step, expected)

    def state(self) -> list[int]:
        """Return the state in the form in which the model prints it."""
        now = serving_state.read(self._folder)
        canary = now.canary.version if now.canary else 0
        file = self._folder / "rollout" / "models.config"
        label_pairs = re.findall(r'key: "(\w+)" value: (\d+)', file.read_text()) if file.exists() else []
        labels = {label: int(version) for label, version in label_pairs}
        stable, served = (labels.get(name, 0) for name in ("stable", "canary"))
        sets = [
            sum(1 << version_number for version_number in group)
            for group in (now.removing, serving_state.versions(self._folder))
        ]
        # Without a canary, its label refers to the stable version. The model counts this as no canary.
        return [now.stable or 0, canary, *sets, stable, 0 if served == stable else served]

    def _push(self, number: int, _: object, process: Process) -> None:
        self._current.process = process
        store = SteppedStore(local_folder.open_folder(str(self._folder)), process)
        _, added = store.add(str(self._model), 1, pushed.PROVENANCE)
        assert added == number
        publish._assign_stage(store, PLAN, number, pushed.PROVENANCE)

    def _stage(self, number: int, begin: Callable[[PushFolder, int], object], process: Process) -> None:
        self._current.process = process
        folder = SteppedFolder(str(self._folder), None)
        vars(folder).update(store=SteppedStore(local_folder.open_folder(str(self._folder)), process), process=process)
        begin(folder, number)

    def _canary(self, folder: PushFolder, number: int) -> object:
        return promotion.set_canary(folder, number, 10)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_code_makes_the_steps_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    made_steps = set()
    for seed in range(first, first + 20):
        (tmp_path / str(seed)).mkdir()
        with monkeypatch.context() as patched:
            code = Code(tmp_path / str(seed), patched)
            for step, *values in simulate(MODEL, seed, STEPS):
                if step == "=":
                    assert code.state() == list(map(int, values)), seed
                else:
                    code.make(step, *values)
                    made_steps.add(step)
    assert {"add", "promote", "canary", "save", "files", "remove", "refused", "crash"} == made_steps
