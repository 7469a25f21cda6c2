"""`runner.py due`: check whether the schedule's condition for a run holds now."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

from components.base.errors import InputError
from pipeline.authoring.config import Config
from pipeline.cli import notifications
from pipeline.cli.local_paths import parse_local_file
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
    """The decision whether a run is due.

    Attributes:
      is_due: Whether the run should start.
      reason: Explanation of the decision for the user.
      drift: Notification to send if drift is the reason; otherwise None.
    """

    is_due: bool
    reason: str
    drift: Notification | None = None


def decide(config: Config) -> Decision:
    """Decide whether a run is due according to `schedule.only_if`.

    To measure drift, this runs the nodes up to StatisticsGen on the newest span as a separate run. The next pipeline
    run takes their outputs from the cache.

    Raises:
      InputError: The data is not divided into spans, or does not match the config.
      MachineError: The metadata store cannot be opened, or the statistics cannot be computed.
    """
    if config.schedule is None or config.schedule.only_if == "every":
        return Decision(True, "it runs each time")
    from components.ingest import input_files

    newest = input_files.newest_span(config.data)
    store = _open_store(config)
    last = store and _find_last_evaluated(config, store)
    if not store or not last:
        return Decision(True, f"no run has judged a model yet; the newest span is {newest}")
    last_span = max(last.spans)
    if newest <= last_span:
        return Decision(False, f"the last run that judged a model took span {last_span}, and there is none after it")
    if config.schedule.only_if == "new_span":
        return Decision(True, f"the newest span is {newest}, and the last run that judged a model took {last_span}")
    if config.section("monitor") is not None and (drifted := _find_drifted_requests(config)):
        shown = notifications.format_drift(drifted, _SHOWN)
        reason = f"requests have drifted, and span {newest} is new: {shown}"
        return Decision(True, reason, _make_notification(config, None, newest, reason, drifted))
    return _compare_statistics(config, store, last, newest, config.schedule.drift)


def _open_store(config: Config) -> Store | None:
    store = config.paths().store
    try:
        return Store(store) if exists(store) else None
    except NoTablesError:
        return None


def _find_last_evaluated(config: Config, store: Store) -> run_history.RunListEntry | None:
    """Return the newest run that evaluated a model, or None if no run did."""
    rows = run_history.list_runs(store, config.paths().logs, config.pipeline.name, states=("done", "rejected"))
    return next((row for row in rows if row.verdict and row.spans), None)


def _find_drifted_requests(config: Config) -> dict[str, float | None]:
    """Return the drifted columns of served requests, and the metrics that exceed their bounds, with their values."""
    from pipeline.cli import served_requests

    try:
        return served_requests.monitor(config).find_drift()
    except InputError as error:
        # On the first day the versions have not received requests yet, so only the data decides.
        print_error(error)
        return {}


def _compare_statistics(
    config: Config, store: Store, last: run_history.RunListEntry, newest: int, bound: float
) -> Decision:
    """Decide whether the columns of the newest span have drifted from the last run that evaluated a model.

    Args:
      config: The config, whose data is read for the newest span.
      store: The metadata store of the pipeline.
      last: The last run that evaluated a model.
      newest: Number of the newest span.
      bound: Distance, from 0 to 1, from which a column counts as drifted.
    """
    from pipeline.inspection import column_statistics

    run = _compute_statistics(config)
    changes = column_statistics.changes(
        column_statistics.columns(store, last.run, _SPLIT), column_statistics.columns(store, run, _SPLIT)
    )
    unmatched = [column.name for column in changes if None in (column.before, column.now)]
    if unmatched:
        reason = f"span {newest} and run {last.run} have different columns: {', '.join(unmatched[:_SHOWN])}"
        return Decision(True, reason, _make_notification(config, last.run, newest, reason, dict.fromkeys(unmatched)))
    distances = [(column.distance, column.name) for column in changes if column.distance is not None]
    drifted = {name: distance for distance, name in distances if distance >= bound}
    if drifted:
        texts = [f"{name} {distance:.3f}" for name, distance in drifted.items()]
        more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
        reason = f"span {newest} has drifted from run {last.run}: {', '.join(texts[:_SHOWN])}{more}"
        return Decision(True, reason, _make_notification(config, last.run, newest, reason, drifted))
    distance, name = max(distances, default=(0.0, "no column"))
    reason = f"span {newest} has not drifted by {bound} from run {last.run}: at most {name}, {distance:.3f}"
    return Decision(False, reason)


def _make_notification(
    config: Config, run: str | None, span: int, reason: str, columns: Mapping[str, float | None]
) -> Notification:
    """Return the notification of drift.

    Args:
      config: The config of the pipeline.
      run: ID of the run that the span was compared with; None if served requests have drifted.
      span: Number of the newest span.
      reason: Explanation for the user.
      columns: Distance per drifted column, or None if the column is new or missing.
    """
    name, details = config.pipeline.name, {"span": span, "version": None, "columns": dict(columns)}
    return Notification("drift", name, run, f"{name}: {reason}", details)


def _compute_statistics(config: Config) -> str:
    """Run the nodes up to StatisticsGen on the newest span, and return the ID of that run."""
    import functools

    from components.base.errors import MachineError
    from pipeline.cli.reporting import REPORTING
    from pipeline.cli.run_output import ProgressDisplay
    from pipeline.orchestration import compiler
    from pipeline.orchestration.local import scheduler

    scheduler.start_server()
    result = scheduler.run(
        scheduler.LocalJob(
            config.pipeline.name,
            config.paths().root,
            functools.partial(compiler.compile_pipeline, config),
            REPORTING,
            to_nodes=("StatisticsGen",),
        ),
        functools.partial(ProgressDisplay, "json"),
    )
    if result.exit_code:
        raise result.error or MachineError(f"run {result.run} did not compute statistics of the data", "see its log")
    return result.run


HELP = "Say whether a scheduled run is due, by schedule.only_if. Exit code 0: yes, 3: no."
EXAMPLE = "python runner.py due --config configs/mine.yaml"
_NO = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--into",
        metavar="FILE",
        type=parse_local_file,
        help="write yes or no into this file, and end with 0 either way",
    )


def run(options: argparse.Namespace) -> int:
    config = load_config(options).config
    is_due, reason, drift = decide(config)
    show(f"{'due' if is_due else 'not due'}: {reason}")
    if drift is not None:
        notifications.send(config.notify, drift)
    if options.into is None:
        return 0 if is_due else _NO
    try:
        options.into.parent.mkdir(parents=True, exist_ok=True)
        options.into.write_text("yes" if is_due else "no", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{options.into} cannot be written: {error.strerror}", "name another file with --into"
        ) from error
    return 0
