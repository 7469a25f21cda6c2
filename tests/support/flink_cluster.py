"""A Flink session cluster and Beam's job server for it, as real processes on this machine; made by tools/engines.sh."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.orchestration.engines.flink_rest import Flink

ENGINES = Path(__file__).parents[2] / ".cache" / "engines"
JOB_SERVER = ENGINES / "job-server-flink-1.19.jar"
needs_engines = pytest.mark.skipif(not JOB_SERVER.exists(), reason="no Flink and Spark: `make engines` makes them")
_FLINK = ENGINES / "lib" / "python3.10" / "site-packages" / "pyflink"
_SECONDS = 120
_SETTINGS = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "jobmanager.memory.process.size": "1024m",
    "taskmanager.bind-host": "localhost",
    "taskmanager.host": "localhost",
    "taskmanager.memory.process.size": "1536m",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
    "taskmanager.network.sort-shuffle.min-buffers": "64",
    "taskmanager.numberOfTaskSlots": "1",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
    # A task manager that is killed is noticed after this many milliseconds.
    "heartbeat.timeout": "10000",
    "heartbeat.interval": "2000",
    # Beam's classes are in Flink's class path, and are loaded once and not for each job.
    "classloader.resolve-order": "parent-first",
}
# Flink's own start scripts, which are not in the package, open the same packages for Java 17.
_OPENED = (
    *("java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.text", "java.time"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
)
_JAVA = (
    # It ends with the test process.
    *("setpriv", "--pdeathsig", "KILL", "java"),
    *("--add-exports=java.base/sun.net.util=ALL-UNNAMED", "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED"),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
)
_LOG4J = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""


@dataclass
class Cluster:
    """A cluster that runs.

    Attributes:
      folder: for its files and logs.
      rest: host:port of Flink's REST API.
      job_endpoint: host:port of Beam's job server.
      task_managers: their processes, with one slot each.
    """

    folder: Path
    rest: str
    job_endpoint: str
    task_managers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def flink(self) -> Flink:
        """A client of its REST API."""
        return Flink(self.rest)

    def start_task_manager(self) -> None:
        """Starts one more."""
        memory, settings = _task_manager_memory(self.folder)
        main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        number = len(self.task_managers) + 1
        self.task_managers.append(self._start(f"task-manager-{number}", *memory, *_main(self.folder, main), *settings))

    def kill_task_manager(self) -> None:
        """Kills the last one."""
        self.task_managers[-1].kill()
        self.task_managers.pop().wait()

    def wait_for_slots(self, count: int) -> None:
        """Waits until the job manager has exactly so many slots."""
        deadline = time.monotonic() + _SECONDS
        found = None
        while found != count and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                found = self.flink.get("/overview")["slots-total"]
            time.sleep(0.2)
        assert found == count, f"see {self.folder}"

    def start(self) -> None:
        """Starts the job manager and the job server."""
        main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._start("job-manager", "-Xmx600m", *_main(self.folder, main))
        port = self.job_endpoint.rpartition(":")[2]
        ports = ("--job-host=localhost", f"--job-port={port}", "--artifact-port=0", "--expansion-port=0")
        artifacts = f"--artifacts-dir={self.folder / 'staged'}"
        self._start("job-server", "-Xmx1g", "-jar", str(JOB_SERVER), *ports, artifacts, f"--flink-master={self.rest}")
        while not accepts_connections(port):
            time.sleep(0.1)

    def end(self) -> None:
        """Kills everything."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*_JAVA, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._processes.append(process)
        return process


@contextlib.contextmanager
def flink_cluster(folder: Path, task_managers: int = 2, **settings: str) -> Iterator[Cluster]:
    """A cluster, as long as the context lasts.

    Args:
      folder: for its files; made.
      task_managers: how many, with one slot each.
      settings: of Flink, with _ for . in their names.
    """
    folder.mkdir()
    rpc, rest, job = free_ports(3)
    ports = {"jobmanager.rpc.port": rpc, "rest.port": rest, "io.tmp.dirs": str(folder / "tmp")}
    given = {name.replace("_", "."): value for name, value in settings.items()}
    lines = (f"{name}: {value}\n" for name, value in {**_SETTINGS, **ports, **given}.items())
    (folder / "flink-conf.yaml").write_text("".join(lines))
    (folder / "log4j.properties").write_text(_LOG4J)
    cluster = Cluster(folder, f"localhost:{rest}", f"localhost:{job}")
    try:
        cluster.start()
        for _ in range(task_managers):
            cluster.start_task_manager()
        cluster.wait_for_slots(task_managers)
        yield cluster
    finally:
        cluster.end()


def _main(folder: Path, main: str) -> tuple[str, ...]:
    classes = f"{_FLINK / 'lib'}/*{os.pathsep}{JOB_SERVER}"
    return (
        f"-Dlog4j.configurationFile={folder / 'log4j.properties'}",
        "-cp",
        classes,
        main,
        "--configDir",
        str(folder),
    )


@functools.cache
def _task_manager_memory(folder: Path) -> tuple[list[str], list[str]]:
    """The options of Java, and Flink's own, that follow from a task manager's memory."""
    classes = f"{_FLINK / 'bin' / 'bash-java-utils.jar'}{os.pathsep}{_FLINK / 'lib'}/*"
    command = ["java", "-cp", classes, "org.apache.flink.runtime.util.bash.BashJavaUtils", "GET_TM_RESOURCE_PARAMS"]
    ended = subprocess.run([*command, "--configDir", folder], capture_output=True, text=True, check=True)
    lines = [line.partition("EXEC_RESULT:")[2].split() for line in ended.stdout.splitlines() if "EXEC_RESULT:" in line]
    memory, settings = lines
    return memory, settings


def accepts_connections(port: str) -> bool:
    """Whether a server listens at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", int(port))):
        return True
    return False


def free_ports(count: int) -> list[str]:
    """Ports of this machine at which no server listens."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [str(each.getsockname()[1]) for each in sockets]
