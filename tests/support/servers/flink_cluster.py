"""The services of deploy/flink/compose.yaml as real processes on this machine, with Flink from tools/engines.sh.

Settings, commands and options are taken from the file; only host names, ports and the path of the job server's jar are
specific to this machine. As a program it starts all services, prints their addresses as JSON, and ends them with stdin:

    python tests/support/servers/flink_cluster.py FOLDER [TASK MANAGERS]
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from pipeline.orchestration.engines.flink_rest import Flink
from tests.support.servers.beam_servers import Server

ROOT = Path(__file__).parents[3]
ENGINES = ROOT / ".cache" / "engines"
JOB_SERVER = ENGINES / "job-server-flink-1.19.jar"
needs_engines = pytest.mark.skipif(not JOB_SERVER.exists(), reason="no Flink and Spark: `make engines` makes them")
_FLINK = ENGINES / "lib" / "python3.10" / "site-packages" / "pyflink"
_SECONDS = 300
_COMPOSE = yaml.safe_load((ROOT / "deploy" / "flink" / "compose.yaml").read_text())["services"]
_OPERATED = yaml.safe_load((ROOT / "deploy" / "flink" / "kubernetes" / "flink.yaml").read_text())["spec"]
_LOCAL = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "taskmanager.bind-host": "localhost",
    "taskmanager.host": "localhost",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
    # On a busy machine ten seconds are not enough.
    "pekko.startup-timeout": "300s",
}
_ENDS_WITH_THIS = ("setpriv", "--pdeathsig", "KILL")
_JAVA = ("java", *_OPERATED["flinkConfiguration"]["env.java.opts.all"].split())
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
    """A running cluster.

    Attributes:
      folder: for its files and logs.
      rest: host:port of Flink's REST API.
      job_endpoint: host:port of Beam's job server.
      workers: the worker pool, which all task managers share.
      task_managers: their processes, with one slot each.
    """

    folder: Path
    rest: str
    job_endpoint: str
    workers: Server = field(init=False)
    task_managers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def flink(self) -> Flink:
        """A client of Flink's REST API."""
        return Flink(self.rest)

    @property
    def section(self) -> dict[str, object]:
        """The section of the config, with the parallelism of all task managers."""
        return {
            "job_endpoint": self.job_endpoint,
            "worker_pool": self.workers.address,
            "rest": self.rest,
            "parallelism": len(self.task_managers),
        }

    def start_task_manager(self) -> None:
        """Start another task manager."""
        main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        self.task_managers.append(self._start_flink(f"task-manager-{len(self.task_managers) + 1}", main, "TM"))

    def kill_task_manager(self) -> None:
        """Kill the task manager that was started last."""
        self.task_managers[-1].kill()
        self.task_managers.pop().wait()

    @property
    def services(self) -> tuple[str, ...]:
        """Return the names of the cluster's processes."""
        return tuple(self._processes)

    def kill(self, service: str) -> None:
        """Kill a process."""
        self._processes[service].kill()
        self._processes[service].wait()

    def start_again(self, service: str) -> None:
        """Start a process that has been killed, with the same command."""
        command = [str(word) for word in self._processes[service].args]  # type: ignore[union-attr]
        if service == "pool":
            command[command.index("--port") + 1] = self.workers.address.rpartition(":")[2]
        self._start(service, *command[len(_ENDS_WITH_THIS) :])

    def wait_for_slots(self, count: int) -> None:
        """Wait until the job manager has exactly this number of slots."""
        deadline = time.monotonic() + _SECONDS
        slots = None
        while slots != count and time.monotonic() < deadline:
            assert self._processes["job-manager"].poll() is None, f"the job manager has ended, see {self.folder}"
            with contextlib.suppress(OSError):
                slots = self.flink.get("/overview")["slots-total"]
            time.sleep(0.2)
        assert slots == count, f"see {self.folder}"

    def start(self) -> None:
        """Start the job manager, the job server and the worker pool."""
        main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._start_flink("job-manager", main, "JM")
        port = self.job_endpoint.rpartition(":")[2]
        jar = self.folder / "gradle" / "wrapper" / JOB_SERVER.name
        jar.parent.mkdir(parents=True)
        # Not a symbolic link, which Beam would follow.
        shutil.copy(JOB_SERVER, jar)
        here = {
            "/opt/gradle/wrapper/job-server-flink-1.19.jar": str(jar),
            "--job-host=job-server": "--job-host=localhost",
            "--job-port=8099": f"--job-port={port}",
            "--artifact-port=8098": "--artifact-port=0",
            "--expansion-port=8097": "--expansion-port=0",
            "--artifacts-dir=/tmp/staged": f"--artifacts-dir={self.folder / 'staged'}",
            "--flink-master=jobmanager:8081": f"--flink-master={self.rest}",
        }
        self._start("job-server", *replace_words(_COMPOSE["job-server"]["command"], here))
        self.workers = self._start_pool()
        while not accepts_connections(port):
            time.sleep(0.1)

    def end(self) -> None:
        """Kill all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _start_flink(self, name: str, main: str, kind: str) -> subprocess.Popen[bytes]:
        memory, settings = _memory(self.folder, kind)
        logging = f"-Dlog4j.configurationFile={self.folder / 'log4j.properties'}"
        classes = f"{_FLINK / 'lib'}/*{os.pathsep}{JOB_SERVER}"
        return self._start(
            name, *_JAVA, *memory, logging, "-cp", classes, main, "--configDir", str(self.folder), *settings
        )

    def _start_pool(self) -> Server:
        service = _COMPOSE["workers-1"]
        command = replace_words([*service["entrypoint"], *service["command"]], {"python": sys.executable, "50000": "0"})
        process = self._start("pool", *command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as lines:
            line = lines.readline().decode()
        log = self.folder / "pool.log"
        assert line, log.read_text()
        return Server(line.split()[-1], log, process.pid)

    def _start(self, name: str, *command: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*_ENDS_WITH_THIS, *command],
                cwd=ROOT,
                # Workers find the functions of the tests' pipelines there.
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
            )
        self._processes[name] = process
        return process


@contextlib.contextmanager
def flink_cluster(folder: Path, task_managers: int = 2) -> Iterator[Cluster]:
    """Yield a cluster, which ends with the context.

    Args:
      folder: New folder for its files.
      task_managers: how many, with one slot each.
    """
    folder.mkdir()
    rpc, rest_port, job = free_ports(3)
    ports = {"jobmanager.rpc.port": rpc, "rest.port": rest_port, "io.tmp.dirs": str(folder / "tmp")}
    lines = (f"{name}: {value}\n" for name, value in {**settings(), **_LOCAL, **ports}.items())
    (folder / "flink-conf.yaml").write_text("".join(lines))
    (folder / "log4j.properties").write_text(_LOG4J)
    cluster = Cluster(folder, f"localhost:{rest_port}", f"localhost:{job}")
    try:
        cluster.start()
        for _ in range(task_managers):
            cluster.start_task_manager()
        cluster.wait_for_slots(task_managers)
        yield cluster
    finally:
        cluster.end()


def settings() -> dict[str, str]:
    """Return Flink's settings in the compose file as the entry point of Flink's image reads them: without spaces."""
    lines = _COMPOSE["jobmanager"]["environment"]["FLINK_PROPERTIES"].splitlines()
    return dict(line.replace(" ", "").split(":", 1) for line in lines)


def replace_words(words: Sequence[str], here: Mapping[str, str]) -> list[str]:
    """Replace words of a command; all of them must occur in it."""
    assert set(here) <= set(words)
    return [here.get(word, word) for word in words]


@functools.cache
def _memory(folder: Path, kind: str) -> tuple[list[str], list[str]]:
    """Return the options of Java and Flink for the memory of a job manager (JM) or task manager (TM)."""
    classes = f"{_FLINK / 'bin' / 'bash-java-utils.jar'}{os.pathsep}{_FLINK / 'lib'}/*"
    main = "org.apache.flink.runtime.util.bash.BashJavaUtils"
    command = ["java", "-cp", classes, main, f"GET_{kind}_RESOURCE_PARAMS", "--configDir", folder]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.partition("EXEC_RESULT:")[2].split() for line in ended.stdout.splitlines() if "EXEC_RESULT:" in line]
    memory, options = lines
    return memory, options


def accepts_connections(port: str) -> bool:
    """Return whether a server listens at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", int(port))):
        return True
    return False


def free_ports(count: int) -> list[str]:
    """Return unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [str(sock.getsockname()[1]) for sock in sockets]


def main(arguments: Sequence[str]) -> None:
    """Run a cluster until stdin ends; the first line on stdout is the section of the config, as JSON."""
    with flink_cluster(Path(arguments[0]), *map(int, arguments[1:])) as cluster:
        sys.stdout.write(json.dumps(cluster.section) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
