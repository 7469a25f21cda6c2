"""Writes runs to MLflow with MLflow's client: the config as parameters, the metrics, and the training curves."""

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

from components.base.errors import MachineError, first_line
from pipeline.core.metadata.store import Store
from pipeline.core.run_record import RUNNING
from pipeline.core.text import flatten_json
from pipeline.inspection import run_history, run_summary, training_curves
from pipeline.inspection.run_history import RunListEntry

_STATUS = {"done": RunStatus.FINISHED, "rejected": RunStatus.FINISHED, "interrupted": RunStatus.KILLED}
_FORBIDDEN = re.compile(r"[^\w\-. /:]")
_PARAMETERS, _METRICS = 100, 1000
"""Maximum number of parameters and of metrics that MLflow accepts in one request."""
_CHARACTERS = 6000
"""Maximum length of a parameter value in MLflow."""
_FILE_STORE = "MLFLOW_ALLOW_FILE_STORE"


def export(store: Store, logs: Path, pipeline: str | None, to: str) -> tuple[int, int]:
    """Write finished runs to MLflow. The runs of a pipeline belong to the experiment with the pipeline's name.

    Runs that MLflow already has are skipped. A run is written again if it was resumed since the last export, or if an
    interrupted export left it incomplete.

    Args:
      store: The store that holds the runs.
      logs: Folder with one subfolder per run.
      pipeline: Name of the pipeline whose runs are exported. If None, all runs.
      to: Tracking URI of MLflow, or a local folder.

    Returns:
      The number of runs that were written, and the number of runs that were skipped.

    Raises:
      MachineError: MLflow refuses a request or does not answer.
    """
    if "://" not in to:
        # Without this variable the client refuses folders, because MLflow maintains only its databases.
        os.environ.setdefault(_FILE_STORE, "true")
        to = Path(to).absolute().as_uri()
    written = present = 0
    try:
        client = MlflowClient(tracking_uri=to)
        runs_by_experiment: dict[str, dict[str, Any]] = {}
        for entry in run_history.list_runs(store, logs, pipeline):
            if entry.state == RUNNING:
                continue
            experiment = _get_or_create_experiment(client, entry.pipeline)
            if experiment not in runs_by_experiment:
                runs_by_experiment[experiment] = _read_runs(client, experiment)
            run = runs_by_experiment[experiment].get(entry.run)
            if run is not None and run.info.status != "RUNNING" and run.data.tags.get("state") == entry.state:
                present += 1
                continue
            if run is not None:
                client.delete_run(run.info.run_id)
            _write(client, experiment, store, entry)
            written += 1
    except MlflowException as error:
        raise MachineError(
            f"--into: MLflow refuses: {first_line(error)}", "see docs/how-to/metadata.md, MLflow"
        ) from error
    return written, present


def _get_or_create_experiment(client: MlflowClient, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))


def _read_runs(client: MlflowClient, experiment: str) -> dict[str, Any]:
    """Return the MLflow runs that earlier exports wrote to an experiment, by the ID of the pipeline run."""
    runs: dict[str, Any] = {}
    page_token = None
    while True:
        page = client.search_runs([experiment], max_results=1000, page_token=page_token)
        runs |= {run.data.tags["run"]: run for run in page if "run" in run.data.tags}
        page_token = page.token
        if not page_token:
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
    # Runs of stock TFX pipelines do not record a config.
    config = store.configs([entry.run]).get(entry.run)
    values = flatten_json(json.loads(config)) if config else []
    parameters = [Param(_sanitize(name), value[:_CHARACTERS]) for name, value in values]
    metrics = list(_read_metrics(store, entry, started))
    for first in range(0, len(parameters), _PARAMETERS):
        client.log_batch(run, params=parameters[first : first + _PARAMETERS])
    for first in range(0, len(metrics), _METRICS):
        client.log_batch(run, metrics=metrics[first : first + _METRICS])
    # Set the status last, so that a run that an interrupted export left incomplete is still RUNNING.
    status = RunStatus.to_string(_STATUS.get(entry.state, RunStatus.FAILED))
    client.set_terminated(run, status, round((entry.started + entry.seconds) * 1000))


def _read_metrics(store: Store, entry: RunListEntry, time: int) -> Iterator[Metric]:
    """Yield the metrics of the eval split, the rows per split, the duration, and the points of the training curves."""
    summary = run_summary.summarize(store, entry.run)
    values = {
        **summary.metrics,
        **{f"baseline.{name}": value for name, value in summary.baseline.items()},
        **{f"rows.{split}": float(count) for split, count in summary.rows.items()},
        "seconds": entry.seconds,
    }
    for name, value in values.items():
        yield Metric(_sanitize(name), value, time, 0)
    for artifact in store.artifacts(entry.run, "ModelRun")[-1:]:
        for name, kinds in training_curves.read(artifact.uri).items():
            for kind, points in kinds.items():
                for step, value in points:
                    yield Metric(_sanitize(f"{kind}/{name}"), value, time, int(step))


def _sanitize(text: str) -> str:
    """Replace the characters that MLflow does not accept in names, and shorten the name to MLflow's maximum."""
    return _FORBIDDEN.sub("_", text)[:250]
