"""A real Airflow in a separate environment: PostgreSQL, API server, scheduler and DAG processor, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

from pg8000 import dbapi

from pipeline.cli import main
from tests.support.runs.command import ROOT
from tests.support.servers.databases import PASSWORD, Server, postgresql
from tests.support.servers.forked_command import interpreter

PROGRAM = ROOT / ".cache" / "airflow" / "bin" / "airflow"
REAL_NODE = "SchemaGen"
"""Its tasks are processes of the project's own interpreter."""
_SECONDS = 300
"""No test waits for this: it only ends one that hangs, with the logs, before pytest ends the whole worker."""
PARTS: Mapping[str, tuple[str, ...]] = {"api-server": (), "scheduler": ("--skip-serve-logs",), "dag-processor": ()}
"""Processes and their options. Not `airflow standalone`: its log servers listen everywhere, and outlive it."""
_TICK_SECONDS = 0.5


@dataclass
class Airflow:
    """An Airflow installation with its running services.

    Attributes:
      home: its folder.
      database: Airflow's database. SQLite is not enough: its processes sometimes lock the file for each other.
      dags: Folder that Airflow reads DAGs from.
      python: an interpreter whose commands are forks of the node server; None: tasks cannot be forks.
      environment: Further environment variables of its processes.
    """

    USER: ClassVar = "Anonymous"
    """Name of the user of Airflow's API, whom its simple authentication accepts without a password."""
    home: Path
    database: Server
    python: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    _parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def dags(self) -> Path:
        return self.home / "dags"

    def command(self, *arguments: str) -> str:
        """Run one of Airflow's own commands; return what it prints."""
        ended = subprocess.run(
            [PROGRAM, *arguments], env=self._environment(), capture_output=True, text=True, timeout=_SECONDS
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self) -> None:
        """Create the database and start all services; wait until the API server answers, which tasks need at once."""
        self.dags.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        self.command("db", "migrate")
        for part in PARTS:
            self.start_part(part)
        self.until(self._answers, "the API server does not answer")

    def start_part(self, part: str, *arguments: str) -> None:
        """Start one of PARTS, or another process of Airflow.

        Args:
          part: Name of the process and of its log.
          arguments: Arguments of `airflow`. By default, the name and the options in PARTS.
        """
        with self._log(part) as log:
            self._parts[part] = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", PROGRAM, *(arguments or (part, *PARTS[part]))],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop_part(self, part: str) -> None:
        """Kill a process that was started, and the tasks that it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._parts[part].pid, signal.SIGKILL)
        self._parts[part].wait()

    def dead(self) -> list[str]:
        """Return the names of the started processes that have ended."""
        return [name for name, process in self._parts.items() if process.poll() is not None]

    def stop(self) -> None:
        """Stop all services."""
        for part in self._parts:
            self.stop_part(part)

    def fork(self, dag: str) -> None:
        """Run the tasks of a DAG as forks, except the task of REAL_NODE."""
        self.run_with(dag, self.python)

    def run_with(self, dag: str, python: Path | None) -> None:
        """Run the tasks of a DAG with another interpreter."""
        manifest = self.dags / dag / "manifest.json"
        content = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**content, "python": str(python)}))

    def knows(self, dag: str) -> None:
        """Wait until Airflow has read a DAG."""
        self.until(lambda: self.ask("SELECT 1 FROM serialized_dag WHERE dag_id = %s", dag), f"no DAG {dag}")

    def trigger(self, dag: str, run: str, logical_date: str | None = None) -> None:
        """Start a run through Airflow's API, which takes less time than its command."""
        token = self._request("/auth/token")["access_token"]
        body = {"dag_run_id": run, "logical_date": logical_date}
        self._request(f"/api/v2/dags/{dag}/dagRuns", body, token)

    def asset_events(self, asset: str) -> list[object]:
        """Return the extra information of all updates of an asset, oldest first."""
        question = (
            "SELECT asset_event.extra FROM asset_event JOIN asset ON asset.id = asset_event.asset_id "
            "WHERE asset.name = %s ORDER BY asset_event.id"
        )
        return [extra for (extra,) in self.ask(question, asset)]

    def state(self, dag: str, run: str) -> str | None:
        """Return the state of a DAG run, or None if the run does not exist."""
        rows = self.ask("SELECT state FROM dag_run WHERE dag_id = %s AND run_id = %s", dag, run)
        return str(rows[0][0]) if rows else None

    def ended(self, dag: str, runs: int = 1) -> dict[str, str]:
        """Wait until this number of DAG runs has ended; return their states."""
        question = (
            "SELECT run_id, state FROM dag_run WHERE dag_id = %s AND state IN ('success', 'failed') ORDER BY run_id"
        )
        self.until(lambda: len(self.ask(question, dag)) >= runs, f"fewer than {runs} runs of {dag} have ended")
        return dict(self.ask(question, dag))

    def has_run(self, dag: str, run: str, task: str, attempt: int) -> bool:
        """Return whether an attempt has started the task's command; a fork of Airflow's executor may hang before."""
        log = self.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}" / f"attempt={attempt}.log"
        return "Running command" in log.read_text()

    def answer(self, dag: str, run: str, task: str, option: str, **fields: str) -> None:
        """Wait until a task waits for a person, and choose an option with the values of the form, by Airflow's API."""
        # Airflow 3.3 fails a task that is answered before the scheduler knows that the asking process has ended.
        event = f"task_id='{task}', run_id='{run}', try_number=1"
        received = re.compile(rf"Received executor event with state success .*{re.escape(event)}")
        question = (
            "SELECT 1 FROM task_instance t JOIN hitl_detail h ON h.ti_id = t.id"
            " WHERE t.dag_id = %s AND t.run_id = %s AND t.task_id = %s"
        )
        self.until(lambda: self.ask(question, dag, run, task), f"{task} of {run} does not wait for a person")
        log = self.home / "scheduler.log"
        self.until(lambda: received.search(log.read_text()), f"the scheduler does not know the end of {task}")
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/-1/hitlDetails"
        body = {"chosen_options": [option], "params_input": {"note": "none", **fields}}
        token = self._request("/auth/token")["access_token"]
        self._request(path, body, token, "PATCH")

    def tasks(self, dag: str, run: str) -> dict[str, tuple[str, int]]:
        """Return task → (state, number of the last try)."""
        question = "SELECT task_id, state, try_number FROM task_instance WHERE dag_id = %s AND run_id = %s"
        return {task: (state, tries) for task, state, tries in self.ask(question, dag, run)}

    def task_states(self, dag: str) -> list[object]:
        """Return the states of all tasks of all runs of a DAG."""
        return [state for (state,) in self.ask("SELECT state FROM task_instance WHERE dag_id = %s", dag)]

    def until(self, holds: Callable[[], object], otherwise: str) -> None:
        """Wait until a condition holds; fail with `otherwise` and the logs if a process ends or it takes too long."""
        deadline = time.monotonic() + _SECONDS
        while not holds():
            if (dead := self.dead()) or time.monotonic() > deadline:
                logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in self.home.glob("*.log"))
                raise AssertionError(f"{otherwise}; ended: {dead}\n{logs}")
            time.sleep(_TICK_SECONDS)

    def _request(self, path: str, body: object = None, token: str = "", method: str | None = None) -> Any:
        """Return the answer of the API server to a GET, or with a body to a POST of JSON or another method."""
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **authorization},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - the address is http
            return json.load(answer)

    def _answers(self) -> bool:
        try:
            return bool(self._request("/api/v2/version"))
        except OSError:
            return False

    def ask(self, question: str, *values: str) -> list[tuple[object, ...]]:
        """Return the rows of a query in Airflow's database."""
        location = self.database.location
        with contextlib.closing(
            dbapi.connect(location.user, location.host, location.name, location.port, PASSWORD, timeout=30)
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(question, values)
            return [tuple(row) for row in cursor.fetchall()]

    def _log(self, name: str) -> IO[bytes]:
        return (self.home / f"{name}.log").open("ab")

    def _environment(self) -> dict[str, str]:
        address, location = f"http://127.0.0.1:{self._port}", self.database.location
        account = f"{location.user}:{urllib.parse.quote(PASSWORD, safe='')}"
        # Leave out this project's variables: a task gets only the variables that the manifest passes on.
        inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        return {
            **inherited,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of thirty-two signs or more",  # pragma: allowlist secret
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{account}@{location.host}:{location.port}/{location.name}",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            # On a busy machine the first answers of the API server take longer than the default, 5 s. The task then
            # counts as failed before it has started, and is tried again after the pause of the DAG, 5 min.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            **self.environment,
        }


@contextlib.contextmanager
def airflow(home: Path, python: Path | None = None, environment: Mapping[str, str] | None = None) -> Iterator[Airflow]:
    """Yield a running site; see Airflow for the arguments."""
    with postgresql() as database:
        site = Airflow(home, database, python, environment or {})
        try:
            site.start()
            yield site
        finally:
            site.stop()


@contextlib.contextmanager
def forking_airflow(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Airflow]:
    """Yield a running site, whose tasks can be forks."""
    with interpreter(main, home, _SECONDS, real=REAL_NODE) as python, airflow(home, python, environment) as site:
        yield site
