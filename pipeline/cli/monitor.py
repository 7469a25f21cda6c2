"""`runner.py monitor`: whether served requests look like the training rows, and how good the answers were."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import GATE, InputError
from components.files import write_atomically
from pipeline.cli import notifications
from pipeline.cli import options as shared
from pipeline.cli.local_paths import local_file, local_path
from pipeline.cli.notifications import Notification
from pipeline.cli.output import print_json, show, suppress_native_stderr, table
from pipeline.cli.run_output import metric_table
from pipeline.core.text import plain
from pipeline.inspection.evaluation_tables import format_slice_name
from pipeline.registry import versions

if TYPE_CHECKING:
    from components.monitor.result import Judgement, Monitoring, Outcome, VersionDifference
    from pipeline.authoring.config import Config

HELP = (
    "Compare served requests with the rows that the version was trained on, and answers with labels that have arrived. "
    "Exit code 3 if a column has drifted, or a metric exceeds its bound."
)
_COLUMNS = 12
"""Columns of a version that the table has; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_config(parser)
    parser.add_argument("--requests", metavar="FOLDER", help="the request log (default: monitor.requests)")
    parser.add_argument(
        "--html", metavar="FILE", type=local_file, help="write a page with the distributions and metrics"
    )
    parser.add_argument(
        "--prometheus", type=local_path, metavar="FILE", help="write the figures for Prometheus' textfile collector"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    assigned = [] if options.requests is None else [f"monitor.requests=[{shared.quoted(options.requests)}]"]
    config = shared.load_config(options, *assigned).config
    with suppress_native_stderr():
        result = monitor(config)
    if options.prometheus:
        write_atomically(Path(options.prometheus), _metrics(result))
    if options.html:
        # Imported late, as it is only needed here.
        from pipeline.inspection.report import run_page, write

        write.write_text(options.html, run_page.render_monitoring(result, config.pipeline.name), "--html")
    if options.json:
        print_json(result.to_dict())
    else:
        for each in result.judgements:
            _show(each)
        for outcome in result.outcomes:
            _show_outcome(outcome)
        for difference in result.differences:
            _show_difference(difference)
    for version in dict.fromkeys(each.version for each in result.judgements):
        if columns := drifted(result, version):
            notifications.send(config.notify, _drift(config.pipeline.name, version, columns))
    return GATE if any(result.findings()) else 0


def drifted(result: Monitoring, version: int | None = None) -> dict[str, float | None]:
    """What has drifted: column, or metric below its bound → distance, or value.

    Args:
      result: of `monitor`.
      version: only of this version; None: of all.
    """
    found: dict[str, float | None] = {}
    for judged in result.judgements:
        for each in (judged.findings or ()) if version in (None, judged.version) else ():
            # Of several findings on a column, the first is its distance.
            found.setdefault(each.column, each.value)
    for outcome in result.outcomes:
        for check in outcome.failed if version in (None, outcome.version) else ():
            found.setdefault(check.metric, check.value)
    return found


def in_words(columns: Mapping[str, float | None]) -> Iterator[str]:
    """Yields each entry of `drifted` as text."""
    for name, value in columns.items():
        yield name if value is None else f"{name} {value:.3f}"


def _drift(pipeline: str, version: int, columns: Mapping[str, float | None]) -> Notification:
    text = f"{pipeline}: requests to version {version} have drifted: {plain(', '.join(in_words(columns)))}"
    return Notification("drift", pipeline, None, text, {"span": None, "version": version, "columns": dict(columns)})


def monitor(config: Config) -> Monitoring:
    """Monitors the newest requests to the pushed versions of a config.

    Raises:
      InputError: the config names no requests, or there are none of a pushed version; or a version differs from its
        manifest, or its training rows are not there any more.
    """
    # Imported late: these import TensorFlow.
    from components.monitor import monitoring
    from pipeline.authoring.plans import monitor_plan
    from pipeline.inspection import served_versions

    plan = monitor_plan(config)
    if plan is None:
        raise InputError("expected a section monitor, or --requests, received none", "name the request log")
    push_folder = shared.push_folder_of(config)
    # A version with a damaged manifest does not serve, and has no run.
    runs = {
        entry.version: (entry.run, str(push_folder.find(entry.version)))
        for entry in versions.list_versions(push_folder)
        if entry.run
    }
    found = served_versions.Versions(shared.open_own(config).store, runs, push_folder.verify)
    result = monitoring.monitor(found, plan)
    if not result.judgements:
        raise InputError(
            f"expected requests to a version of {push_folder.path} in the log, received none",
            "name the log of the server that serves this push folder",
        )
    return result


def _show(judged: Judgement) -> None:
    if judged.findings is None:
        verdict = "not judged: too few rows (monitor.least_rows)"
    else:
        drifted = ", ".join(f"{each.column} ({each.what} {each.value:.3f})" for each in judged.findings)
        verdict = f"drifted: {drifted}" if drifted else "no drift"
    show(
        f"version {judged.version}, {judged.rows:,} rows ({judged.compared:,} compared) against {judged.reference} "
        f"({judged.reference_rows:,}): {plain(verdict)}"
    )
    rows = table("column", "distance", "PSI", "p-value", "missing", "new values")
    for each in judged.columns[:_COLUMNS]:
        figures = (each.distance, each.psi, each.p_value)
        texts = ["" if figure is None else f"{figure:.4f}" for figure in figures]
        missing = " -> ".join(f"{share:.3f}" for share in each.missing)
        rows.add_row(plain(each.name), *texts, missing, "" if each.new is None else f"{each.new:.3f}")
    show(rows)


def _show_outcome(outcome: Outcome) -> None:
    if not outcome.slices:
        without = "none has a label yet" if outcome.keyed else "none has the key (monitor.key)"
        show(f"{_of(outcome)}: {outcome.rows:,} rows, {outcome.keyed:,} with a key, of which {without}")
        return
    verdict = "not judged: too few labels (monitor.least_rows)"
    if outcome.checks is not None:
        failed = "; ".join(map(str, outcome.failed))
        verdict = plain(failed, 400) if failed else "no bound exceeded" if outcome.checks else "no bounds"
    show(
        f"{_of(outcome)}: {outcome.labelled:,} of {outcome.rows:,} rows with a label "
        f"({outcome.keyed:,} with a key): {verdict}"
    )
    overall, *slices = outcome.slices
    evaluated = next((each.intervals for each in outcome.evaluated if not each.slice), {})
    rows = table("metric", "value", "95 % interval", "Evaluator", "its interval")
    for name, value in overall.metrics.items():
        before = overall.baseline.get(name)
        intervals = (_ends(overall.intervals.get(name)), _ends(evaluated.get(name)))
        rows.add_row(name, f"{value:.4f}", intervals[0], "" if before is None else f"{before:.4f}", intervals[1])
    show(rows)
    if slices:
        show(metric_table([overall, *slices], list(overall.metrics), {}))


def _of(outcome: Outcome) -> str:
    label = f", {outcome.label}" if outcome.label else ""
    return f"version {outcome.version}{label}"


def _show_difference(difference: VersionDifference) -> None:
    show(f"version {difference.b} minus version {difference.a}, {difference.units:,} keys with a label:")
    rows = table("metric", "difference", "95 % interval")
    for name, each in difference.metrics.items():
        rows.add_row(name, f"{each.value:+.4f}", _ends(each.interval))
    show(rows)


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"


def _metrics(result: Monitoring) -> str:
    """The figures in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tfx_pipeline_monitor_{name}", text, labels, registry=registry)

    of_version, of_column = ("version", "reference"), ("version", "reference", "column")
    gauges = {
        "distance": gauge("distance", "Distance of a column from the reference, 0 to 1", *of_column),
        "psi": gauge("psi", "Population stability index of a column", *of_column),
        "p_value": gauge("p_value", "Corrected p-value of the test whether a column has changed", *of_column),
        "missing": gauge("missing", "Share of rows without a value", *of_column),
        "drifted": gauge("drifted", "Whether a column has drifted", *of_column),
    }
    rows = gauge("rows", "Rows in the window", *of_version)
    for judged in result.judgements:
        rows.labels(str(judged.version), judged.reference).set(judged.rows)
        found = {finding.column for finding in judged.findings or ()}
        for column in judged.columns:
            figures = {"distance": column.distance, "psi": column.psi, "p_value": column.p_value}
            figures |= {"missing": column.missing[1], "drifted": float(column.name in found)}
            for name, figure in figures.items():
                if figure is not None:
                    gauges[name].labels(str(judged.version), judged.reference, column.name).set(figure)
    labelled = gauge("labelled_rows", "Compared rows that have a label", "version", "label")
    value = gauge("metric", "Metric of the answers by labels that have arrived", "version", "slice", "metric")
    evaluated = gauge("evaluated_metric", "The Evaluator's value of the version", "version", "slice", "metric")
    exceeded = gauge("bound_exceeded", "Whether a metric exceeds a bound", "version", "metric")
    for outcome in result.outcomes:
        version = str(outcome.version)
        labelled.labels(version, outcome.label).set(outcome.labelled)
        for each in outcome.slices:
            for name, figure in each.metrics.items():
                value.labels(version, format_slice_name(each.slice), name).set(figure)
            for name, figure in each.baseline.items():
                evaluated.labels(version, format_slice_name(each.slice), name).set(figure)
        failed = {check.metric for check in outcome.failed}
        for name in {check.metric for check in outcome.checks or ()}:
            exceeded.labels(version, name).set(float(name in failed))
    return bytes(generate_latest(registry)).decode()
