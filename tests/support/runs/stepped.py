"""Executes the steps of a spin model with the real code, in threads that wait before every step for the model."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from components.base.errors import InputError, MachineError


class Crash(BaseException):
    """Raised where the model's process crashes."""


class Process:
    """A thread that executes a process of the model.

    Args:
      work: Function that the thread runs; it receives the process, and calls `wait` before every step.
    """

    def __init__(self, work: Callable[[Process], object]) -> None:
        self._steps: queue.Queue[str] = queue.Queue()
        self._results: queue.Queue[str] = queue.Queue()
        self._has_begun = False
        self.has_ended = False
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def make(self, step: str, expected: str) -> None:
        """Execute a step, whose result is `made`, `refused` or `crash`."""
        if self.has_ended:
            assert step == "crash"
            return
        self._steps.put(step)
        result = self._results.get(timeout=60)
        assert result == expected, f"{step}: {result}"

    def wait(self, *steps: str) -> str:
        """Wait for the model's next step and return it; the code calls this before every step."""
        if self._has_begun:
            self._results.put("made")
        self._has_begun = True
        received = self._steps.get()
        if received == "crash":
            raise Crash
        assert received in (*steps, "refused"), f"expected {steps}, received {received}"
        return received

    def _run(self, work: Callable[[Process], object]) -> None:
        result = "made"
        try:
            work(self)
        except Crash:
            result = "crash"
        except (InputError, MachineError):
            result = "refused"
        except BaseException as error:
            result = repr(error)
        self.has_ended = True
        self._results.put(result)


def verify(folder: Path, model: Path, *options: str) -> str:
    """Return the result of spin's exhaustive search."""
    subprocess.run(["spin", *options, "-a", model], cwd=folder, check=True, capture_output=True)
    subprocess.run(["gcc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-w", "-o", "pan", "pan.c"], cwd=folder, check=True)
    return subprocess.run(["./pan", "-m100000"], cwd=folder, check=True, capture_output=True, text=True).stdout


def simulate(model: Path, seed: int, steps: Collection[str], *options: str) -> Iterator[list[str]]:
    """Yield the words of the lines that a random interleaving prints and that begin with one of `steps`."""
    command = ["spin", "-T", f"-n{seed}", *options, model]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return (words for line in output.splitlines() if (words := line.split())[:1] and words[0] in steps)
