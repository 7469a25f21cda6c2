"""Prism, and Spark with Beam's job server, as real processes on this machine; made by tools/engines.sh."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.servers.flink_cluster import ENGINES, accepts_connections, free_ports

PRISM = ENGINES / "bin" / "prism"
JOB_SERVER = ENGINES / "job-server-spark-3.jar"
needs_prism = pytest.mark.skipif(not PRISM.exists(), reason="no Prism: `make engines` makes it")
_SPARK = ENGINES / "lib" / "python3.10" / "site-packages" / "pyspark"
_SECONDS = 300
# The options that Spark's scripts pass to Java: org.apache.spark.launcher.JavaModuleOptions of Spark 3.5.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_OPENS = tuple(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)
# Beam's classes come before Spark's, which has an older Guava, but not before Spark's newer commons-io.
_BEAM = os.pathsep.join([*map(str, (_SPARK / "jars").glob("commons-io-*.jar")), str(JOB_SERVER)])
_ALL = f"{_SPARK / 'jars'}/*"


@contextlib.contextmanager
def prism(folder: Path) -> Iterator[str]:
    """Yield the address of Prism's job service."""
    folder.mkdir()
    [port] = free_ports(1)
    with _start(folder / "prism.log", [str(PRISM), f"-job_port={port}", "-web_port=0", "-serve_http=false"], port):
        yield f"localhost:{port}"


@contextlib.contextmanager
def spark(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a Spark cluster with a job server; yield the job server's address.

    Args:
      folder: New folder for its files.
      workers: Number of workers, with one core each.
    """
    folder.mkdir()
    master, job, *ports = free_ports(2 + workers)
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as running:

        def start(name: str, port: str, *arguments: str) -> None:
            environment = {"SPARK_SCALA_VERSION": "2.12", "SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
            environment["SPARK_WORKER_DIR"] = str(folder / name)
            command = ["java", "-Xmx512m", *_OPENS, "-cp", *arguments]
            running.enter_context(_start(folder / f"{name}.log", command, port, environment))

        address = f"spark://localhost:{master}"
        start(
            "master",
            master,
            _ALL,
            f"{deploy}.master.Master",
            "--host",
            "localhost",
            "--port",
            master,
            "--webui-port",
            "0",
        )
        for number, port in enumerate(ports):
            worker = (
                f"{deploy}.worker.Worker",
                "--host",
                "localhost",
                "--port",
                port,
                "--cores",
                "1",
                "--memory",
                "1g",
            )
            start(f"worker-{number}", port, _ALL, *worker, "--webui-port", "0", address)
        opened = f"-Dspark.executor.extraJavaOptions={' '.join(_OPENS)}"
        driver = ("-Dspark.driver.host=localhost", "-Dspark.driver.bindAddress=127.0.0.1", "-Dspark.ui.enabled=false")
        executor = ("-Dspark.executor.memory=768m", f"-Dspark.executor.extraClassPath={_BEAM}", opened)
        main = "org.apache.beam.runners.spark.SparkJobServerDriver"
        server = ("--job-host=localhost", f"--job-port={job}", "--artifact-port=0", "--expansion-port=0")
        staged = f"--artifacts-dir={folder / 'staged'}"
        start(
            "job-server",
            job,
            f"{_BEAM}{os.pathsep}{_ALL}",
            *driver,
            *executor,
            main,
            *server,
            staged,
            f"--spark-master-url={address}",
        )
        yield f"localhost:{job}"


@contextlib.contextmanager
def _start(log: Path, command: Sequence[str], port: str, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Start a process, enter the context once it accepts connections, and stop it at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + _SECONDS
        while not accepts_connections(port):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()
