"""`runner.py due`: whether the condition of the schedule for a run holds now."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from typing import NamedTuple

from components.errors import InputError
from pipeline.authoring.config import Config
from pipeline.cli import monitor, notifications
from pipeline.cli.local_paths import local_file
from pipeline.cli.notifications import Notification
from pipeline.cli.options import add_config, load_config
from pipeline.cli.output import show
from pipeline.core.metadata.location import exists
from pipeline.core.metadata.sql import NoTablesError
from pipeline.core.metadata.store import Store
from pipeline.core.text import print_error
from pipeline.inspection import run_history

_SHOWN = 3
_SPLIT = "train"


class Decision(NamedTuple):
    """Whether a run is due.

    Attributes:
      yes: whether it is.
      why: the reason, for people.
      drift: the notification of drift, if that is the reason.
    """

    yes: bool
    why: str
    drift: Notification | None = None


def due(config: Config) -> Decision:
    """Whether `schedule.only_if` holds, and why.

    To measure drift, the nodes up to StatisticsGen run on the data, as a run of their own; the next run takes their
    outputs from the cache.

    Raises:
      InputError: the data has no span, or does not fit the config.
      MachineError: the metadata store does not open, or the data cannot be counted.
    """
    if config.schedule is None or config.schedule.only_if == "every":
        return Decision(True, "it runs each time")
    from components.ingest import input_files

    newest = input_files.newest_span(config.data)
    store = _store(config)
    last = store and _last_judged(config, store)
    if not store or not last:
        return Decision(True, f"no run has judged a model yet; the newest span is {newest}")
    taken = max(last.spans)
    if newest <= taken:
        return Decision(False, f"the last run that judged a model took span {taken}, and there is none after it")
    if config.schedule.only_if == "new_span":
        return Decision(True, f"the newest span is {newest}, and the last run that judged a model took {taken}")
    if config.monitor is not None and (drifted := _drifted_requests(config)):
        shown = ", ".join(itertools.islice(monitor.in_words(drifted), _SHOWN))
        why = f"requests have drifted, and span {newest} is new: {shown}"
        return Decision(True, why, _drift(config, None, newest, why, drifted))
    return _drifted(config, store, last, newest, config.schedule.drift)


def _store(config: Config) -> Store | None:
    store = config.paths().store
    try:
        return Store(store) if exists(store) else None
    except NoTablesError:
        return None


def _last_judged(config: Config, store: Store) -> run_history.RunListEntry | None:
    """The newest run that evaluated a model."""
    rows = run_history.list_runs(store, config.paths().logs, config.pipeline.name, states=("done", "rejected"))
    return next((row for row in rows if row.verdict and row.spans), None)


def _drifted_requests(config: Config) -> dict[str, float | None]:
    """What has drifted in served requests, and metrics beyond their bounds; nothing if no version was asked."""
    try:
        return monitor.drifted(monitor.monitor(config))
    except InputError as error:
        # On the first day no version has been asked yet; the span decides.
        print_error(error)
        return {}


def _drifted(config: Config, store: Store, last: run_history.RunListEntry, newest: int, bound: float) -> Decision:
    from pipeline.inspection import column_statistics

    now = _counted(config)
    changes = column_statistics.changes(
        column_statistics.columns(store, last.run, _SPLIT), column_statistics.columns(store, now, _SPLIT)
    )
    gone = [each.name for each in changes if None in (each.before, each.now)]
    if gone:
        why = f"span {newest} has not the columns of run {last.run}: {', '.join(gone[:_SHOWN])}"
        return Decision(True, why, _drift(config, last.run, newest, why, dict.fromkeys(gone)))
    apart = [(each.distance, each.name) for each in changes if each.distance is not None]
    far = {name: distance for distance, name in apart if distance >= bound}
    moved = [f"{name} {distance:.3f}" for name, distance in far.items()]
    if moved:
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        why = f"span {newest} has drifted from run {last.run}: {', '.join(moved[:_SHOWN])}{more}"
        return Decision(True, why, _drift(config, last.run, newest, why, far))
    distance, name = max(apart, default=(0.0, "no column"))
    why = f"span {newest} has not drifted by {bound} from run {last.run}: at most {name}, {distance:.3f}"
    return Decision(False, why)


def _drift(config: Config, run: str | None, span: int, why: str, columns: Mapping[str, float | None]) -> Notification:
    """The notification; `columns` has the distance of each column that drifted, None for a new or a missing one."""
    name = config.pipeline.name
    return Notification("drift", name, run, f"{name}: {why}", {"span": span, "version": None, "columns": dict(columns)})


def _counted(config: Config) -> str:
    """Computes statistics of the newest span; returns the id of the run."""
    import functools

    from components.errors import MachineError
    from pipeline.cli.reporting import REPORTING
    from pipeline.cli.run_output import ProgressDisplay
    from pipeline.orchestration import compiler
    from pipeline.orchestration.local import scheduler

    scheduler.start_server()
    ended = scheduler.run(
        scheduler.LocalJob(
            config.pipeline.name,
            config.paths().root,
            functools.partial(compiler.compile_pipeline, config),
            REPORTING,
            to_nodes=("StatisticsGen",),
        ),
        functools.partial(ProgressDisplay, "json"),
    )
    if ended.exit_code:
        raise ended.error or MachineError(f"run {ended.run} has not counted the data", "see its log")
    return ended.run


HELP = "Say whether a scheduled run is due, by schedule.only_if. Exit code 0: yes, 3: no."
_NO = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--to", metavar="FILE", type=local_file, help="write yes or no into this file, and end with 0 either way"
    )


def run(options: argparse.Namespace) -> int:
    config = load_config(options).config
    yes, why, drift = due(config)
    show(f"{'due' if yes else 'not due'}: {why}")
    if drift is not None:
        notifications.send(config.notify, drift)
    if options.to is None:
        return 0 if yes else _NO
    try:
        options.to.parent.mkdir(parents=True, exist_ok=True)
        options.to.write_text("yes" if yes else "no", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{options.to} cannot be written: {error.strerror}", "name another file with --to") from error
    return 0
