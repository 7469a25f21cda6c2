"""Private database servers, Debian's PostgreSQL and MariaDB, on loopback and in a scratch folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pipeline.core.metadata.location import Database
from tests.support.programs import programs

PASSWORD = "open sesame: %1$'\"\\"  # noqa: S105 - of a server that lives for a test
USER = "tfx"
_SECONDS = 60
"""No test waits for this: it only keeps one that hangs from holding up all the others."""


@dataclass
class Server:
    """A database server with a database `metadata`, whose user cannot access other databases.

    Attributes:
      backend: as the config calls it.
      folder: with its data and its log.
      port: on loopback.
      command: that starts it.
      administer: the command line of a client that does what its standard input says, as its administrator.
      environment: of both.
    """

    backend: str
    folder: Path
    port: int
    command: Sequence[str]
    administer: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def location(self) -> Database:
        """URL of the database, with its user."""
        return Database(self.backend, "127.0.0.1", self.port, "metadata", USER)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._all(), start_new_session=True
            )
        deadline = time.monotonic() + _SECONDS
        while self.run("SELECT 1;", check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Stop the server and all processes it has started."""
        if self._process is not None:
            # Every PostgreSQL process starts a new session, and all of them share memory with the first process.
            family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
            self._process.send_signal(how)
            self._process.wait(_SECONDS)
            if how == signal.SIGKILL:
                for process in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            assert not psutil.wait_procs(family, _SECONDS)[1]
            self._process = None

    def run(self, sql: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Execute SQL as the administrator."""
        return subprocess.run(
            self.administer, input=sql, env=self._all(), check=check, capture_output=True, text=True, timeout=_SECONDS
        )

    def renew(self) -> None:
        """Empty the database."""
        # FORCE closes connections that are still open.
        self.run("DROP DATABASE metadata" + (" WITH (FORCE);" if self.backend == "postgresql" else ";"))
        self.add("metadata")

    def add(self, name: str) -> Database:
        """Create another database, which `renew` does not empty, and return its URL."""
        self.run(_CREATE[self.backend].format(name))
        return Database(self.backend, "127.0.0.1", self.port, name, USER)

    def _all(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


_CREATE = {
    "postgresql": f"CREATE DATABASE {{0}} OWNER {USER};",
    "mysql": f"CREATE DATABASE {{0}}; GRANT ALL ON {{0}}.* TO {USER}@'%';",
}


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    """Yield a PostgreSQL."""
    binaries = Path(programs.find("initdb")).parent
    with _scratch("postgres") as folder:
        data, port = folder / "data", _free_port()
        as_user = _as("postgres")
        command = [binaries / "initdb", "-D", data, "-U", "root", "-A", "trust", "--no-sync", "-E", "UTF8"]
        # A locale that does not sort by byte values.
        subprocess.run([*as_user, *command, "--locale=C.UTF-8"], check=True, capture_output=True, timeout=_SECONDS)
        (data / "pg_hba.conf").write_text(f"local all root trust\nhost all {USER} 127.0.0.1/32 scram-sha-256\n")
        options = ["-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        server = Server(
            "postgresql",
            folder,
            port,
            [*as_user, *map(str, [binaries / "postgres", "-D", data, *options])],
            ["psql", "-h", str(folder), "-p", str(port), "-U", "root", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-q"],
        )
        server.start()
        try:
            escaped = PASSWORD.replace("'", "''")
            server.run(f"CREATE USER {USER} PASSWORD '{escaped}';")
            server.add("metadata")
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def mariadb() -> Iterator[Server]:
    """Yield a MariaDB."""
    server_program = programs.find("mariadbd")
    with _scratch("mysql") as folder:
        data, port, way = folder / "data", _free_port(), str(folder / "socket")
        as_user = _as("mysql")
        common = ["--no-defaults", f"--datadir={data}"]
        command = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run([*as_user, *command], check=True, capture_output=True, timeout=_SECONDS)
        options = [f"--socket={way}", f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/pid"]
        # Use less memory and disk than a production server; committed data still survives the process.
        options += ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=2"]
        server = Server(
            "mysql",
            folder,
            port,
            [*as_user, server_program, *common, *options],
            ["mariadb", "--no-defaults", f"--socket={way}", "-u", "root"],
        )
        server.start()
        try:
            escaped = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
            server.run(f"CREATE USER {USER}@'%' IDENTIFIED BY '{escaped}';")
            server.add("metadata")
            yield server
        finally:
            server.stop()


SERVERS = {"postgresql": postgresql, "mysql": mariadb}
PROGRAMS = {"postgresql": "initdb", "mysql": "mariadbd"}


@contextlib.contextmanager
def _scratch(user: str) -> Iterator[Path]:
    """Yield a folder for a server of that user; a socket's path has to be short."""
    folder = Path(tempfile.mkdtemp(prefix=f"{user}-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user, user)
        folder.chmod(0o755)
        (folder / "log").touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as(user: str) -> list[str]:
    """Return the prefix of a command line that runs a program as this user instead of root."""
    if os.geteuid() != 0:
        return []
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
