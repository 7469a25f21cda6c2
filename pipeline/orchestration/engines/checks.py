"""Checks of an engine before a run: it accepts connections, its jar exists, and it can read the data."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from components.errors import InputError, MachineError
from components.files import is_remote
from pipeline.authoring.config import Config
from pipeline.authoring.config.runtime import FlinkConfig
from pipeline.core.paths import Paths
from pipeline.orchestration import engines
from pipeline.orchestration.engines.flink_rest import Flink
from pipeline.orchestration.engines.job_server import rest_address

_SECONDS = 5.0
_NO_RESTARTS = ("none", "off", "disable")
_MOST_ATTEMPTS = 10
"""Restarts by Flink itself after which a job may still be submitted again in good time."""


def check(config: Config, paths: Paths) -> None:
    """Checks what a run on the engine requires.

    Args:
      config: the config.
      paths: of its pipeline.

    Raises:
      InputError: a jar does not exist, or data or artifacts are where the engine cannot read them.
      MachineError: nothing accepts connections at the engine's address, or java is not installed.
    """
    runtime = config.runtime
    _check_jar(runtime.engine, engines.jar(runtime))
    if not engines.reads_this_disk(runtime):
        _check_uris(config, paths)
    for address in engines.addresses(runtime):
        _check_answers(runtime.engine, address)
    if runtime.engine == "flink" and runtime.flink and (rest := rest_address(runtime.flink)):
        _check_flink(runtime.flink, Flink(rest))


def _check_jar(engine: str, jar: str | None) -> None:
    if jar is None:
        return
    if not Path(jar).is_file():
        raise InputError(
            f"runtime.{engine}.job_server_jar: expected a file, received {jar}, which does not exist",
            f"download Beam's job server for {engine}, or set runtime.{engine}.job_endpoint to one that runs",
        )
    if shutil.which("java") is None:
        raise MachineError(
            f"engine {engine} starts {jar} with java, and there is no java on PATH",
            f"install a Java runtime, or set runtime.{engine}.job_endpoint to a job server that runs elsewhere",
        )


def _check_uris(config: Config, paths: Paths) -> None:
    local = [f"data.path: {path}" for path in config.data.path if not is_remote(path)]
    if not is_remote(paths.artifacts):
        local.append(f"runtime.artifacts: {paths.artifacts}")
    if not local:
        return
    engine = config.runtime.engine
    remedy = "put them where both can reach them, such as data.path=gs://bucket/data, runtime.artifacts=gs://bucket/out"
    if engine != "dataflow":
        remedy += f"; or, if its machines see the same folders, set runtime.{engine}.shared_folders=true"
    raise InputError(f"engine {engine} works on other machines, which cannot read this one's disk", remedy, local)


def _check_answers(engine: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except OSError as error:
        raise MachineError(
            f"engine {engine}: expected a server at {address}, received {error.strerror or error}",
            f"start it first (see docs/engines.md), or set another address in runtime.{engine}",
        ) from error


def _check_flink(section: FlinkConfig, flink: Flink) -> None:
    """Checks Flink's slots, and its own restarts of a job."""
    try:
        slots, settings = flink.get("/overview")["slots-total"], flink.config()
    except (OSError, ValueError, KeyError) as error:
        raise MachineError(
            f"engine flink: expected Flink's REST API at {rest_address(section)}, received {error}",
            "set runtime.flink.rest to the address of the job manager's web page",
        ) from error
    parallelism = section.parallelism or int(settings.get("parallelism.default", 1))
    if slots < parallelism:
        raise InputError(
            f"runtime.flink.parallelism: expected at most the {slots} slots of the cluster, received {parallelism}",
            "start more task managers, give each more taskmanager.numberOfTaskSlots, or set a lower parallelism",
        )
    strategy = settings.get("restart-strategy.type", settings.get("restart-strategy", "none"))
    attempts = int(settings.get("restart-strategy.fixed-delay.attempts", 1))
    is_bounded = strategy in _NO_RESTARTS or (strategy == "fixed-delay" and attempts <= _MOST_ATTEMPTS)
    if section.worker_cache_seconds and not is_bounded:
        received = f"{attempts:,} attempts" if strategy == "fixed-delay" else f"the strategy {strategy}"
        raise InputError(
            f"Flink's restart strategy: expected at most {_MOST_ATTEMPTS} attempts, received {received}: each fails as "
            "long as the Python worker that was lost is cached",
            "set restart-strategy.type: none in Flink's configuration (this run submits a lost job again), or "
            "runtime.flink.worker_cache_seconds=0",
        )
