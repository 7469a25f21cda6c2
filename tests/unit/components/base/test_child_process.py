"""Child processes: their results, outputs and ends, and their death with the parent."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NoReturn

import pytest

from components.base.child_process import ChildProcess, WaitingProcess

SECONDS = 60

MODULE = """
import sys

print("loading")

def load():
    print("loaded", file=sys.stderr)
    return divide

def divide(numerator, denominator):
    print("dividing", flush=True)
    if denominator is None:
        sys.exit(7)
    return [numerator / denominator]
"""


@pytest.fixture
def use_standard_files() -> Iterator[Callable[[], None]]:
    """Return a function that undoes pytest's replacement of the standard files, which takes effect after fixtures."""
    with open(1, "w", closefd=False) as out, open(2, "w", closefd=False) as err, pytest.MonkeyPatch.context() as patch:

        def use() -> None:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)

        yield use


def kill_this_process() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def test_result_is_what_the_function_has_returned() -> None:
    process = ChildProcess(lambda length, text: (os.getpid(), length * text), 1 << 20, "x")
    # The result is longer than a pipe holds, and is not read before the process has ended.
    assert process.wait() == 0
    assert process.result() == (process.pid, "x" * (1 << 20))
    assert ChildProcess(lambda: None).result() is None


def test_exception_is_printed_and_the_exit_code_is_1(tmp_path: Path, use_standard_files: Callable[[], None]) -> None:
    use_standard_files()

    def fail() -> None:
        sys.stdout.write("before\n")
        raise ValueError("no such luck")

    with (tmp_path / "log").open("ab") as log:
        process = ChildProcess(fail, output=log.fileno())
    assert process.result() is None
    assert process.wait() == 1
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "ValueError: no such luck"


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (7, 7), ("stop", 1)])
def test_exit_code_of_a_system_exit(code: int | str, expected: int) -> None:
    process = ChildProcess(sys.exit, code)
    assert process.wait() == expected
    assert process.result() is None


def test_killed_process_has_no_result() -> None:
    process = ChildProcess(kill_this_process)
    assert process.result() is None
    assert process.wait() == process.poll() == -signal.SIGKILL
    # A signal to a process that has ended must not reach another process with the same ID.
    process.kill()
    process.end()


def test_descriptor_becomes_readable_when_the_process_ends() -> None:
    process = ChildProcess(signal.pause)
    assert process.poll() is None
    assert not select.select([process.pidfd], [], [], 0)[0]
    process.kill()
    assert select.select([process.pidfd], [], [], SECONDS)[0]
    assert process.poll() == -signal.SIGKILL


def test_output_is_appended_to_the_log_and_buffered_text_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        os.write(1, b"of native code\n")
        os.write(2, b"of the function\n")

    log = tmp_path / "log"
    log.write_text("earlier\n")
    with log.open("a") as file:
        monkeypatch.setattr(sys, "stdout", file)
        file.write("of the parent\n")
        ChildProcess(write, output=file.fileno()).wait()
    assert log.read_text() == "earlier\nof the parent\nof native code\nof the function\n"


@pytest.mark.parametrize(
    ("handler", "expected"), [(lambda *_: os._exit(3), 3), (signal.SIG_IGN, -signal.SIGKILL)], ids=["exits", "ignores"]
)
def test_process_is_killed_if_it_does_not_end_at_sigterm(
    handler: Callable[..., None] | signal.Handlers, expected: int
) -> None:
    def pause(ready: Connection) -> None:
        signal.signal(signal.SIGTERM, handler)
        ready.send(True)
        while True:
            signal.pause()

    receiver, sender = Pipe(duplex=False)
    with receiver, sender:
        process = ChildProcess(pause, sender)
        assert receiver.recv()
        process.end(SECONDS if expected == 3 else 0.01)
    assert process.wait() == expected


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Write a module with a function `load`, which returns a function that divides; return the module's name."""
    (tmp_path / "divider.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield "divider"
    sys.modules.pop("divider", None)


both_ways = pytest.mark.parametrize("fork", [True, False], ids=["fork", "interpreter"])


@both_ways
def test_waiting_process_calls_the_function_when_the_arguments_are_known(
    module: str, fork: bool, use_standard_files: Callable[[], None]
) -> None:
    use_standard_files()
    process = WaitingProcess(module, fork=fork)
    assert process.poll() is None
    process.run(3, 2)
    assert process.result() == [1.5]
    assert sorted(process.output().splitlines()) == ["dividing", "loaded", "loading"]


@both_ways
def test_waiting_process_that_fails(module: str, fork: bool, use_standard_files: Callable[[], None]) -> None:
    use_standard_files()
    process = WaitingProcess(module, fork=fork)
    process.run(3, 0)
    assert process.wait() == 1
    assert process.output().splitlines()[-1] == "ZeroDivisionError: division by zero"
    process = WaitingProcess(module, fork=fork)
    process.run(3, None)
    assert process.wait() == 7
    process = WaitingProcess("no_such_module", fork=fork)
    process.run()
    assert process.wait() == 1
    assert process.output().splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module'"


@both_ways
def test_killed_waiting_process_can_be_called(module: str, fork: bool) -> None:
    process = WaitingProcess(module, fork=fork)
    process.end()
    # A longer request than a pipe holds.
    process.run("x" * (1 << 20), 1)
    assert process.wait() == -signal.SIGKILL
    assert process.result() is None


def start_at_once(_: str) -> ChildProcess:
    return ChildProcess(signal.pause)


def fork_waiting(module: str) -> ChildProcess:
    return WaitingProcess(module, fork=True)


def start_interpreter(module: str) -> ChildProcess:
    return WaitingProcess(module, fork=False)


@pytest.mark.parametrize("start", [start_at_once, fork_waiting, start_interpreter])
def test_process_ends_with_its_parent(module: str, start: Callable[[str], ChildProcess]) -> None:
    def be_a_parent(connection: Connection) -> None:
        process = start(module)
        connection.send(process.pid)
        signal.pause()

    receiver, sender = Pipe(duplex=False)
    with receiver, sender:
        parent = ChildProcess(be_a_parent, sender)
        child = os.pidfd_open(receiver.recv())
    parent.kill()
    assert select.select([child], [], [], SECONDS)[0]
    os.close(child)
