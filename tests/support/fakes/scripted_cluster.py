"""Scripted clusters: each start of a task runs the next line of its script instead of a training."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.base.errors import InputError
from components.trainer.cluster import heartbeat
from components.trainer.cluster import supervisor as supervisor_module
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig

DETAILS = tuple(f"{number}: {'too long, ' * 60}and not over" for number in range(200))
"""Of an error that is longer than a pipe holds; `refuse=N` raises an error with N of them."""


def supervise(
    folder: Path,
    training: dict[str, Any],
    scripts: Mapping[str, Sequence[str]],
    stalled_heartbeats: int,
    gpus: str = "-1",
) -> dict[str, int]:
    """Run a cluster to its end, and return the supervisor's summary.

    Args:
      folder: Folder for the records of the tasks' starts, and for the logs.
      training: the config's section.
      scripts: Task → its actions at the first start, the second start and so on; the last entry repeats.
        A task without a script serves.
      stalled_heartbeats: heartbeats without a step after which the lead is killed.
      gpus: GPUs of the machine, in the format of CUDA_VISIBLE_DEVICES.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    supervisor_module._STALLED_HEARTBEATS = stalled_heartbeats
    config = TrainingConfig.model_validate(training)
    run_task = functools.partial(_act, folder, scripts)
    supervisor = Supervisor(config, run_task, folder / "logs", folder / "tasks")
    return dataclasses.asdict(supervisor.run())


def starts(folder: Path, task: str) -> list[dict[str, Any]]:
    """Return the TF_CONFIG at every start of a task, with CUDA_VISIBLE_DEVICES as `gpus`, STALE_CONTEXTS as `stale`."""
    file = folder / f"{task}.starts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _act(folder: Path, scripts: Mapping[str, Sequence[str]], role: Role) -> None:
    script = scripts.get(role.name, ["serve"])
    number = len(starts(folder, role.name))
    with (folder / f"{role.name}.starts").open("a") as file:
        start = {
            **json.loads(os.environ["TF_CONFIG"]),
            "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
            "stale": os.environ["STALE_CONTEXTS"],
        }
        file.write(json.dumps(start) + "\n")
    for instruction in script[min(number, len(script) - 1)].split():
        action, _, value = instruction.partition("=")
        if action in ("restored", "saved", "step", "context"):
            heartbeat.send_status(action, int(value))
        elif action == "damaged":
            heartbeat.send_status(action, value)
        elif action in ("variables", "steps"):
            heartbeat.send_status(action, json.loads(value))
        elif action == "transfer":
            _transfer(int(value))
            heartbeat.send_traffic()
        elif action == "warn":
            heartbeat.warn(value)
        elif action == "serve":
            signal.pause()
        elif action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif action == "exit":
            raise SystemExit(int(value))
        elif action == "raise":
            raise ValueError("no such luck")
        elif action == "refuse":
            raise InputError("the label is constant", "choose another", DETAILS[: int(value or 0)])
        elif action == "meet":
            # Opening blocks until the other end is opened.
            (folder / value).open().close()
        elif action == "let":
            (folder / value).open("w").close()
        elif action == "name":
            (folder / value).write_text(str(os.getpid()))
        elif action == "outlive":
            process = Path("/proc", (folder / value).read_text())
            # The kernel does not notify this process when another process reaps a child.
            while process.exists():
                time.sleep(0.01)
        elif action == "stop":
            os.kill(os.getppid(), signal.SIGTERM)


_connections: list[socket.socket] = []


def _transfer(size: int) -> None:
    """Send bytes over a connection whose ends both belong to this process, and keep it open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    _connections.extend((sender, receiver))
    sender.sendall(bytes(size))
    received = 0
    while received < size:
        received += len(receiver.recv(size))
