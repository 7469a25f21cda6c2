"""Check an engine before a run: it accepts connections, its jar exists, and it can read the data."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from components.base.errors import InputError, MachineError
from components.base.files import is_remote
from pipeline.authoring.config import Config
from pipeline.core.paths import Paths
from pipeline.orchestration import engines

_SECONDS = 5.0


def check(config: Config, paths: Paths) -> None:
    """Check the requirements of a run on the engine.

    Args:
      config: Config of the pipeline.
      paths: Paths of the pipeline.

    Raises:
      InputError: A jar does not exist, or the engine cannot read the data or the artifacts.
      MachineError: The engine's address does not accept connections, or java is not installed.
    """
    runtime = config.runtime
    _check_jar(runtime.engine, engines.jar(runtime))
    if not engines.reads_this_disk(runtime):
        _check_uris(config, paths)
    for address in engines.addresses(runtime):
        _check_answers(runtime.engine, address)
    engines.check(runtime)


def _check_jar(engine: str, jar: str | None) -> None:
    if jar is None:
        return
    if not Path(jar).is_file():
        raise InputError(
            f"runtime.{engine}.job_server_jar: expected a file, received {jar}, which does not exist",
            f"download Beam's job server for {engine}, or set runtime.{engine}.job_endpoint to a running job server",
        )
    if shutil.which("java") is None:
        raise MachineError(
            f"engine {engine}: expected java on PATH to start {jar}, found none",
            f"install a Java runtime, or set runtime.{engine}.job_endpoint to a job server that runs elsewhere",
        )


def _check_uris(config: Config, paths: Paths) -> None:
    local = [f"{field}: {path}" for field, path in config.data.places if not is_remote(path)]
    if not is_remote(paths.artifacts):
        local.append(f"runtime.artifacts: {paths.artifacts}")
    if not local:
        return
    engine = config.runtime.engine
    remedy = "put them where both can reach them, such as data.path=gs://bucket/data, runtime.artifacts=gs://bucket/out"
    if engine != "dataflow":
        remedy += f"; or, if its machines see the same folders, set runtime.{engine}.shared_folders=true"
    raise InputError(f"engine {engine} works on other machines, which cannot read the disk of this one", remedy, local)


def _check_answers(engine: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except OSError as error:
        raise MachineError(
            f"engine {engine}: expected a server at {address}, received {error.strerror or error}",
            f"start it first (see docs/how-to/engines.md), or set another address in runtime.{engine}",
        ) from error
