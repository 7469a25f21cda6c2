"""A version in a process of its own crashes or takes too much memory, and no request to another version fails."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.servers.load import Answer, Load
from tests.support.servers.serving import Server, hoarder, line, serving

MEBIBYTES = 800
STABLE = "/v1/models/line/versions/1:predict"
BODY = json.dumps({"signature_name": "pairs", "instances": [[1, 2]]}).encode()
RIGHT: Answer = (200, b'{"predictions": [3]}')
ENDED = {"error": "the process of the version has ended; try again"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the versions 1 and 2 of `line`, and a model that can take any amount of memory."""
    folder = tmp_path_factory.mktemp("isolated")
    line(folder / "line", 1)
    line(folder / "line", 2, slope=3.0)
    hoarder(folder / "hoarder", 1)
    models = " ".join(
        f'config {{ name: "{name}" base_path: "{folder / name}" model_version_policy {{ all {{ }} }} }}'
        for name in ("line", "hoarder")
    )
    (folder / "models.config").write_text(f"model_config_list {{ {models} }}")
    options = ("--isolate_versions", f"--max_version_bytes={MEBIBYTES << 20}", "--allow_unverified")
    config = f"--model_config_file={folder / 'models.config'}"
    with serving(folder / "server", config, *options, "--enable_batching") as server:
        server.wait("hoarder", 1)
        yield server


def process_of(server: Server, model: str, number: int) -> psutil.Process:
    """Return the latest process of a version."""
    pids = re.findall(rf"/{model}/{number}: loaded in process (\d+)", server.log.read_text())
    return psutil.Process(int(pids[-1]))


def ask_with(server: Server, path: str, signature: str, n: int) -> tuple[int, Any]:
    return server.ask("POST", path, {"signature_name": signature, "inputs": {"n": [n]}})


def wait_until_busy(server: Server, process: psutil.Process) -> None:
    """Wait until a process has used a tenth of a second more of CPU time."""
    before = sum(process.cpu_times()[:2])
    server.until(lambda: sum(process.cpu_times()[:2]) > before + 0.1)


def test_each_version_has_a_process_that_memory_shortage_ends_first(server: Server) -> None:
    processes = [process_of(server, *version) for version in (("line", 1), ("line", 2), ("hoarder", 1))]
    assert len({process.pid for process in processes}) == 3
    for process in processes:
        assert server.process.pid in {parent.pid for parent in process.parents()}
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "500"


def test_killed_version_is_loaded_again_while_the_other_answers(server: Server) -> None:
    victim = process_of(server, "line", 2)
    with (
        Load(f"127.0.0.1:{server.rest}", STABLE, BODY, connections=4) as load,
        ThreadPoolExecutor(1) as threads,
    ):
        load.wait(200)
        answer = threads.submit(ask_with, server, "/v1/models/line/versions/2:predict", "loop", 10**12)
        wait_until_busy(server, victim)
        os.kill(victim.pid, signal.SIGKILL)
        assert answer.result() == (503, ENDED)
        server.until(lambda: "version 2 has failed: its process was killed by SIGKILL" in server.log.read_text())
        server.wait("line", 2)
        load.wait(200)
    assert set(load.answers) == {RIGHT}, load.answers
    assert process_of(server, "line", 2).pid != victim.pid
    assert server.ask("POST", "/v1/models/line/versions/2:predict", BODY) == (200, {"predictions": [3]})


def test_version_that_takes_too_much_memory_is_killed_while_the_others_answer(server: Server) -> None:
    victim = process_of(server, "hoarder", 1)
    with (
        Load(f"127.0.0.1:{server.rest}", STABLE, BODY, connections=4) as load,
        ThreadPoolExecutor(os.cpu_count() or 1) as threads,
    ):
        load.wait(200)
        # As many requests as the version has threads, so that threads which it shared with others would be used up.
        answers = [
            threads.submit(ask_with, server, "/v1/models/hoarder:predict", "hoard", MEBIBYTES)
            for _ in range(os.cpu_count() or 1)
        ]
        assert {(status, str(answer)) for status, answer in (future.result() for future in answers)} == {
            (503, str(ENDED))
        }
        server.wait("hoarder", 1)
        load.wait(200)
    assert set(load.answers) == {RIGHT}, load.answers
    [(used, limit)] = re.findall(r"its process used ([\d,]+) MiB, and may use ([\d,]+) MiB", server.log.read_text())
    assert int(used.replace(",", "")) > int(limit.replace(",", "")) == MEBIBYTES
    assert not victim.is_running()
    status, answer = server.ask("POST", "/v1/models/hoarder:predict", {"inputs": [1.0]})
    assert (status, answer) == (200, {"outputs": [2.0]})


def test_processes_end_with_the_server(server: Server) -> None:
    """Keep this test last: it ends the server."""
    processes = [process_of(server, *version) for version in (("line", 1), ("line", 2), ("hoarder", 1))]
    server.process.kill()
    assert not psutil.wait_procs(processes, 60)[1]
