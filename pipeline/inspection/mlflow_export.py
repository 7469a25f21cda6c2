"""Writes runs to MLflow, by MLflow's own client: the config as parameters, metrics, and training curves by step."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunStatus
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from components.errors import MachineError, first_line
from pipeline.core.metadata.store import Store
from pipeline.core.run_record import RUNNING
from pipeline.core.text import flatten_json
from pipeline.inspection import run_history, run_summary
from pipeline.inspection.report import training_curves
from pipeline.inspection.run_history import RunListEntry

_STATUS = {"done": RunStatus.FINISHED, "rejected": RunStatus.FINISHED, "interrupted": RunStatus.KILLED}
_FORBIDDEN = re.compile(r"[^\w\-. /:]")
_PARAMETERS, _METRICS = 100, 1000
"""MLflow's maximum numbers in one request."""
_CHARACTERS = 6000
"""MLflow's maximum length of a parameter's value."""
_FILE_STORE = "MLFLOW_ALLOW_FILE_STORE"


def export(store: Store, logs: Path, pipeline: str | None, to: str) -> tuple[int, int]:
    """Writes the runs that have ended to the experiment with their pipeline's name, each once.

    A run that was continued since the last export, and one that an export left half-written, is written again.

    Args:
      store: with the runs.
      logs: the folder with a folder per run.
      pipeline: only its runs; None: of all pipelines.
      to: MLflow's tracking URI, or a folder.

    Returns:
      The numbers of runs that were written, and that were there already.

    Raises:
      MachineError: MLflow refuses, or does not answer.
    """
    if "://" not in to:
        # The client refuses folders otherwise: MLflow develops only its databases further.
        os.environ.setdefault(_FILE_STORE, "true")
        to = Path(to).absolute().as_uri()
    written = present = 0
    try:
        client = MlflowClient(tracking_uri=to)
        known: dict[str, dict[str, Any]] = {}
        for entry in run_history.list_runs(store, logs, pipeline):
            if entry.state == RUNNING:
                continue
            experiment = _experiment(client, entry.pipeline)
            if experiment not in known:
                known[experiment] = _runs(client, experiment)
            run = known[experiment].get(entry.run)
            if run is not None and run.info.status != "RUNNING" and run.data.tags.get("state") == entry.state:
                present += 1
                continue
            if run is not None:
                client.delete_run(run.info.run_id)
            _write(client, experiment, store, entry)
            written += 1
    except MlflowException as error:
        raise MachineError(f"--to: MLflow refuses: {first_line(error)}", "see docs/metadata.md, MLflow") from error
    return written, present


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _runs(client: MlflowClient, experiment: str) -> dict[str, Any]:
    """The runs of an experiment that an export has written, by our id."""
    runs: dict[str, Any] = {}
    page = None
    while True:
        found = client.search_runs([experiment], max_results=1000, page_token=page)
        runs |= {run.data.tags["run"]: run for run in found if "run" in run.data.tags}
        page = found.token
        if not page:
            return runs


def _write(client: MlflowClient, experiment: str, store: Store, entry: RunListEntry) -> None:
    started = round(entry.started * 1000)
    tags = {
        "run": entry.run,
        "pipeline": entry.pipeline,
        "state": entry.state,
        "verdict": entry.verdict,
        "pushed_version": entry.version,
        "spans": ", ".join(map(str, entry.spans)),
    }
    tags = {name: value for name, value in tags.items() if value}
    run = client.create_run(experiment, started, tags, entry.run).info.run_id
    # A run of stock TFX has no config.
    config = store.configs([entry.run]).get(entry.run)
    values = flatten_json(json.loads(config)) if config else []
    parameters = [Param(_name(name), value[:_CHARACTERS]) for name, value in values]
    metrics = list(_metrics(store, entry, started))
    for first in range(0, len(parameters), _PARAMETERS):
        client.log_batch(run, params=parameters[first : first + _PARAMETERS])
    for first in range(0, len(metrics), _METRICS):
        client.log_batch(run, metrics=metrics[first : first + _METRICS])
    # Last: a run that an interrupted export has left is still RUNNING.
    status = RunStatus.to_string(_STATUS.get(entry.state, RunStatus.FAILED))
    client.set_terminated(run, status, round((entry.started + entry.seconds) * 1000))


def _metrics(store: Store, entry: RunListEntry, time: int) -> Iterator[Metric]:
    """Yields metrics of the eval split, rows, seconds, and each point of the training curves."""
    summary = run_summary.summarize(store, entry.run)
    values = {
        **summary.metrics,
        **{f"baseline.{name}": value for name, value in summary.baseline.items()},
        **{f"rows.{split}": float(count) for split, count in summary.rows.items()},
        "seconds": entry.seconds,
    }
    for name, value in values.items():
        yield Metric(_name(name), value, time, 0)
    for artifact in store.artifacts(entry.run, "ModelRun")[-1:]:
        for name, kinds in training_curves.read(Path(artifact.uri)).items():
            for kind, points in kinds.items():
                for step, value in points:
                    yield Metric(_name(f"{kind}/{name}"), value, time, int(step))


def _name(text: str) -> str:
    """A name as MLflow accepts it."""
    return _FORBIDDEN.sub("_", text)[:250]
