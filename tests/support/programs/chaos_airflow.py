"""Random faults in runs under a real Airflow, for chaos.py; several faults hit each run.

A task that fails is tried again by Airflow; the failed tasks of a failed run are cleared, as an operator does. The
services are Airflow's scheduler (with the tasks that it runs), API server, DAG processor and database.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from pg8000 import Error

from pipeline.core.metadata.store import Store
from pipeline.orchestration.airflow import pipeline_file
from tests.support.data import people
from tests.support.programs import chaos
from tests.support.programs.chaos import Fault
from tests.support.runs.command import ROOT
from tests.support.servers.airflow_site import PARTS, Airflow, airflow

_DAG = "people"
_PAUSE = 1 / 8
"""The longest time between two faults, as a share of that of a run without faults."""
_KINDS = ["kill", "kill", "kill", "freeze", "terminate", "kill_all", "disk", "service", "service"]
_QUICK = {
    # A few seconds instead of minutes, until the tasks of a killed scheduler are tried again.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
}


class AirflowCampaign:
    """Runs of one DAG.

    Args:
      seed: of the faults.
      folder: for data, outputs and Airflow; a small file system for the outputs is mounted in it.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self._seed, self._random = seed, random.Random(seed)  # noqa: S311 - the seed is recorded
        self._folder, self._disk = folder, folder / "disk"
        self._output = self._disk / "out" / _DAG
        self._config = people.project(
            folder,
            _DAG,
            runtime={"output": str(self._disk / "out"), "cache": False},
            schedule={"every": "@yearly", "start": "2999-01-01", "retries": 5, "retry_minutes": 0},
        )
        self._tag = f"airflow-{os.getpid()}"
        self._pause = 0.0

    def faults(self, count: int) -> Iterator[Fault]:
        """Yield this number of faults; the faults that hit a run come after the run has ended."""
        with chaos.mount_small_disk(self._disk), airflow(self._folder / "airflow", environment=_QUICK) as site:
            self._write_dag(site)
            started = time.monotonic()
            expected = self._complete(site, "without", [], 0)
            self._pause = _PAUSE * (time.monotonic() - started)
            number = 0
            while number < count:
                faults: list[Fault] = []
                result = self._complete(site, f"from_{number}", faults, count - number)
                last = faults[-1] if faults else Fault(self._seed, number)
                last.violations += chaos.kill_remaining(self._tag)
                last.violations += chaos.incomplete(self._output, self._store())
                last.violations += chaos.differences(result, expected, 1e-6, self._store())
                for fault in faults:
                    fault.number += number
                    yield fault
                number += len(faults)
                shutil.rmtree(self._disk / "out")

    def _write_dag(self, site: Airflow) -> None:
        command = [sys.executable, "runner.py", "--airflow", "--config", str(self._config), "--output", str(site.dags)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        manifest = pipeline_file(site.dags, _DAG).with_name("manifest.json")
        content = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**content, "environment": {chaos.TAG: self._tag}}))
        site.knows(_DAG)

    def _complete(self, site: Airflow, run: str, faults: list[Fault], limit: int) -> dict[str, Any]:
        """Complete a run with at most `most` faults, append them to `faults`, and return the run's entry."""
        site.command("dags", "trigger", _DAG, "--run-id", run)
        deadline = time.monotonic() + chaos.LIMIT
        started, pause = time.monotonic(), self._random.uniform(0, self._pause)
        while (state := self._state(site, run)) != "success":
            if time.monotonic() > deadline:
                raise AssertionError(f"seed {self._seed}: {run} has not ended, after {faults}")
            if state == "failed":
                site.command("tasks", "clear", "--yes", "--only-failed", _DAG)
            elif state == "running" and len(faults) < limit and time.monotonic() > started + pause:
                fault = Fault(
                    self._seed, len(faults), self._random.choice(_KINDS), round(time.monotonic() - started, 2)
                )
                if self._strike(site, fault):
                    faults.append(fault)
                    deadline = time.monotonic() + chaos.LIMIT
                started, pause = time.monotonic(), self._random.uniform(0, self._pause)
            time.sleep(0.2)
        listed = subprocess.run(
            [sys.executable, "runner.py", "runs", "--config", str(self._config), "--json"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        return dict(json.loads(listed.stdout.splitlines()[0]))

    def _state(self, site: Airflow, run: str) -> str | None:
        """Return the state of a run; restart services of Airflow that have ended, as a service manager would."""
        for part in site.dead():
            site.start_part(part)
        with contextlib.suppress(Error, OSError):
            return site.state(_DAG, run)
        return None

    def _strike(self, site: Airflow, fault: Fault) -> bool:
        """Inject a fault; return whether a matching process was running."""
        family = sorted(chaos.family_of(self._tag), key=lambda process: process.pid)
        if fault.kind == "service":
            fault.victim = self._random.choice(["database", *PARTS])
            if fault.victim == "database":
                site.database.stop()
                time.sleep(2.0)
                site.database.start()
            else:
                site.stop_part(fault.victim)
            return True
        if fault.kind == "disk":
            release = chaos.fill(self._disk)
            time.sleep(2.0)
            release()
            return True
        if not family:
            return False
        victim = self._random.choice(family)
        with contextlib.suppress(psutil.NoSuchProcess):
            fault.victim = " ".join(victim.cmdline()[1:])[-80:]
            chaos.hit(fault.kind, victim, family, 0)
        return True

    def _store(self) -> Store | None:
        return Store(self._output / "metadata.db")
