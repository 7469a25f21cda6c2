"""Submits a written pipeline to Kubeflow. Its client, kfp, does not fit beside TFX and has its own environment."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from components.errors import InputError, MachineError
from pipeline.config import Config
from pipeline.config.kubeflow import KubeflowConfig
from pipeline.config.schedule import ScheduleConfig
from pipeline.targets.kubeflow import SPAN

PYTHON = "KFP_PYTHON"
"""The environment variable with the path of a Python that has kfp."""
_ROOT = Path(__file__).parents[2]
_OWN = _ROOT / ".cache" / "kubeflow" / "bin" / "python"
_SUBMIT = _ROOT / "deploy" / "kubeflow" / "submit.py"


def submit(config: Config, kubeflow: KubeflowConfig, file: Path) -> str:
    """Starts a run; with a schedule, has Kubeflow start them, in place of an earlier schedule of this pipeline.

    Args:
      config: the pipeline.
      kubeflow: its section.
      file: the pipeline as `kubeflow.write` has written it.

    Returns:
      What has come of it, to be shown.

    Raises:
      InputError: the config does not say where Kubeflow is.
      MachineError: there is no kfp, or Kubeflow refuses or does not answer.
    """
    if kubeflow.host is None:
        raise InputError(
            "--submit: expected kubeflow.host, received none", "set it to the address of Kubeflow's API, with https://"
        )
    schedule = _schedule(config.schedule) if config.schedule else None
    told = {
        "file": str(file.absolute()),
        "name": config.pipeline.name,
        "host": kubeflow.host,
        "namespace": kubeflow.namespace,
        "experiment": kubeflow.experiment,
        "service_account": kubeflow.service_account,
        "schedule": schedule,
    }
    ended = subprocess.run(
        [_python(), str(_SUBMIT)], input=json.dumps(told), capture_output=True, text=True, check=False
    )
    if ended.returncode:
        why = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "it said nothing")
        raise MachineError(
            f"Kubeflow at {kubeflow.host} has not taken the pipeline: {why}",
            f"mend that; the pipeline is in {file}, which Kubeflow's own pages take as well",
        )
    made = json.loads(ended.stdout.splitlines()[-1])
    if schedule is None:
        return f"run {made['run']} has been started at {kubeflow.host}"
    replaced = " in place of the earlier one" if made["replaced"] else ""
    return f"recurring run {made['recurring_run']} at {kubeflow.host}{replaced}: {schedule['cron']}"


def _schedule(schedule: ScheduleConfig) -> dict[str, Any]:
    """The schedule as Kubeflow takes it: its cron begins with seconds, and it fills in the day a run is meant for."""
    return {
        "cron": f"0 {schedule.cron}",
        "start": f"{schedule.start.isoformat()}T00:00:00Z",
        "catch_up": schedule.catch_up,
        "parameters": {SPAN: "[[ScheduledTime.2006-01-02]]"} if schedule.span == "date" else {},
    }


def _python() -> str:
    if given := os.environ.get(PYTHON):
        return given
    # Only the package itself: what TFX needs for Vertex AI brings a part of kfp under its name.
    if importlib.util.find_spec("kfp") and importlib.util.find_spec("kfp.client"):
        return sys.executable
    if _OWN.exists():
        return str(_OWN)
    raise MachineError(
        "--submit: kfp is needed, Kubeflow's own client, and is not installed",
        f"run tools/environment.sh kubeflow, which installs it, or name a Python that has it in {PYTHON}",
    )
