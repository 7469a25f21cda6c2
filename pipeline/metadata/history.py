"""The list of runs: how each ended, how long it took, and what came of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components import version
from pipeline.metadata.facts import BLESSED, NOT_BLESSED
from pipeline.metadata.store import Execution, Run, Store, Value

_PAGE = 200
_TOLD = {"pipeline", "state", "started", "updated"}
"""What `run.json` has, whatever it is the state of."""
_ENDED_WELL = ("COMPLETE", "CACHED")
DIED = "died"
"""The state of a run whose process has gone before it could say how it ended."""


@dataclass(frozen=True)
class Row:
    """A run in the list.

    Attributes:
      run: its id.
      pipeline: the pipeline's name.
      state: done, rejected, failed, interrupted, running, or died.
      started: seconds since the epoch.
      seconds: that it took; of a run that goes on, so far.
      spans: of its data; empty where the input has none.
      verdict: blessed or not blessed; None where nothing was judged.
      metrics: on the whole eval split.
      version: that it pushed.
    """

    run: str
    pipeline: str
    state: str
    started: float
    seconds: float
    spans: tuple[int, ...] = ()
    verdict: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    version: str | None = None


def rows(
    store: Store,
    logs: Path,
    pipeline: str | None = None,
    newest: int | None = None,
    states: Collection[str] = (),
    since: float = 0.0,
) -> Iterator[Row]:
    """The runs, newest first, told as they are found.

    Args:
      store: with the runs.
      logs: the folder with a folder per run, in which our own runs write down more than ML Metadata knows.
      pipeline: its runs alone.
      newest: no more than so many.
      states: runs in these alone; all, if there are none.
      since: runs that began then or later, in seconds since the epoch.
    """
    told, last, page = 0, None, min(newest or _PAGE, _PAGE)
    while newest is None or told < newest:
        some = store.runs(pipeline, page, last)
        for row in _rows(store, logs, [run for run in some if run.started >= since]):
            if (not states or row.state in states) and (newest is None or told < newest):
                told += 1
                yield row
        if len(some) < page or some[-1].started < since:
            return
        last = some[-1]


def row(store: Store, logs: Path, run: Run) -> Row:
    """One run, as in the list."""
    return _rows(store, logs, [run])[0]


def unentered(logs: Path, pipeline: str | None, known: Container[str], since: float) -> list[Row]:
    """The runs of ours that no store knows: they have only just begun, or ended before their first node.

    Args:
      logs: the folder with a folder per run.
      pipeline: its runs alone.
      known: the runs that are in the store.
      since: runs that began then or later, in seconds since the epoch.
    """
    found = []
    for path in logs.glob("*/run.json"):
        name = path.parent.name
        told = None if name in known else record(logs, name)
        if told and told.keys() >= _TOLD and told["started"] >= since and pipeline in (None, told["pipeline"]):
            seconds = told["updated"] - told["started"]
            found.append(Row(name, told["pipeline"], told["state"], told["started"], seconds))
    return found


def is_folder_name(run: str) -> bool:
    """Whether a run's id can be the name of its folder, so that it leads nowhere else."""
    return run not in ("", ".", "..") and "/" not in run and "\0" not in run


def record(logs: Path, run: str) -> dict[str, Any] | None:
    """What a run of ours has written down itself (`run.json`); None of another's, or where it is gone."""
    if not is_folder_name(run):
        return None
    try:
        found: Any = json.loads((logs / run / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("state") == "running" and not _goes_on(logs / run):
        found["state"] = DIED
    return found


def state_of(executions: Collection[Execution]) -> str:
    """The state of a run, by its nodes' alone."""
    states = {each.state for each in executions}
    if states & {"NEW", "RUNNING"}:
        return "running"
    if states <= set(_ENDED_WELL):
        return "done"
    return "failed" if "FAILED" in states else "interrupted"


def _rows(store: Store, logs: Path, runs: list[Run]) -> list[Row]:
    executions: dict[str, list[Execution]] = {run.name: [] for run in runs}
    for each in store.executions(*executions):
        executions[each.run].append(each)
    made = _made(store, executions)
    return [_row(run, executions[run.name], made[run.name], record(logs, run.name) or {}) for run in runs]


def _row(run: Run, executions: list[Execution], made: dict[str, dict[str, Value]], told: dict[str, Any]) -> Row:
    blessed = made.get("ModelBlessing", {}).get("blessed")
    pushed = made.get("PushedModel", {})
    ended = max((each.updated for each in executions), default=run.started)
    return Row(
        run=run.name,
        pipeline=run.pipeline,
        state=told.get("state") or state_of(executions),
        started=told.get("started") or run.started,
        seconds=told["updated"] - told["started"] if "updated" in told else ended - run.started,
        spans=_spans(made.get("Examples", {})),
        verdict=None if blessed is None else BLESSED if blessed else NOT_BLESSED,
        metrics=told.get("metrics") or {},
        version=str(pushed["pushed_version"]) if pushed.get("pushed") and "pushed_version" in pushed else None,
    )


def _made(store: Store, executions: dict[str, list[Execution]]) -> dict[str, dict[str, dict[str, Value]]]:
    """Run → type → the properties of what its nodes have made of it: of the first Examples, the last of all others."""
    run_of = {each.id: each.run for several in executions.values() for each in several if each.succeeded}
    outputs = store.made(run_of, ("Examples", "ModelBlessing", "PushedModel"))
    artifacts = store.artifacts_by_id(artifact for _, artifact in outputs)
    made: dict[str, dict[str, dict[str, Value]]] = {run: {} for run in executions}
    for execution, number in outputs:
        artifact = artifacts[number]
        if artifact.type != "Examples" or "Examples" not in made[run_of[execution]]:
            made[run_of[execution]][artifact.type] = artifact.properties
    return made


def _spans(examples: dict[str, Value]) -> tuple[int, ...]:
    if "span" not in examples:
        return ()
    return version.spans(str(examples.get("input_fingerprint", "")), int(examples["span"]))


def _goes_on(folder: Path) -> bool:
    """Whether a process holds the run's lock."""
    with contextlib.suppress(OSError):
        lock = os.open(folder / "lock", os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
    return False
