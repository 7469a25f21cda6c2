"""`runner.py monitor`: compare served requests with the training rows, and evaluate the predictions served."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from components.base.errors import GATE
from components.base.files import write_atomically
from components.monitor.report_section import make_section
from components.monitor.result import Judgement, Monitoring, Outcome, VersionDifference
from pipeline.cli import notifications
from pipeline.cli import options as shared
from pipeline.cli.local_paths import parse_local_file, parse_local_path
from pipeline.cli.notifications import Notification
from pipeline.cli.output import make_table, print_json, show, suppress_native_stderr
from pipeline.cli.reporting import write_section
from pipeline.cli.run_output import make_metric_table
from pipeline.core.text import plain
from pipeline.inspection.evaluation_tables import format_slice_name

HELP = (
    "Compare served requests with the rows that the version was trained on, and its predictions with labels that have "
    "arrived. Exit code 3 if a column has drifted, or a metric exceeds its bound."
)
EXAMPLE = "python runner.py monitor --config configs/mine.yaml --requests out/requests"
_COLUMNS_SHOWN = 12
"""Maximum number of columns per version that the table shows; --json prints all of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_config(parser)
    parser.add_argument("--requests", metavar="FOLDER", help="the request log (default: monitor.requests)")
    parser.add_argument(
        "--html", metavar="FILE", type=parse_local_file, help="write a page with the distributions and metrics"
    )
    parser.add_argument(
        "--prometheus",
        type=parse_local_path,
        metavar="FILE",
        help="write the figures for Prometheus' textfile collector",
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    overrides = [] if options.requests is None else [f"monitor.requests=[{shared.quote_yaml(options.requests)}]"]
    config = shared.load_config(options, *overrides).config
    # Imported late: it imports TensorFlow.
    with suppress_native_stderr():
        from pipeline.cli import served_requests

        result = served_requests.monitor(config)
    if options.prometheus:
        write_atomically(Path(options.prometheus), _format_prometheus(result))
    if options.html:
        write_section(options.html, make_section(result), config.pipeline.name)
    if options.json:
        print_json(result.to_dict())
    else:
        for judgement in result.judgements:
            _show_judgement(judgement)
        for outcome in result.outcomes:
            _show_outcome(outcome)
        for difference in result.differences:
            _show_difference(difference)
    for version in dict.fromkeys(judgement.version for judgement in result.judgements):
        if drift := result.find_drift(version):
            notifications.send(config.notify, _make_notification(config.pipeline.name, version, drift))
    return GATE if any(result.findings()) else 0


def _make_notification(pipeline: str, version: int, drift: Mapping[str, float | None]) -> Notification:
    text = f"{pipeline}: requests to version {version} have drifted: {plain(notifications.format_drift(drift))}"
    return Notification("drift", pipeline, None, text, {"span": None, "version": version, "columns": dict(drift)})


def _show_judgement(judgement: Judgement) -> None:
    if judgement.findings is None:
        verdict = "not judged: too few rows (monitor.least_rows)"
    else:
        drifted = ", ".join(f"{finding.column} ({finding.what} {finding.value:.3f})" for finding in judgement.findings)
        verdict = f"drifted: {drifted}" if drifted else "no drift"
    show(
        f"version {judgement.version}, {judgement.rows:,} rows ({judgement.compared:,} compared) against "
        f"{judgement.reference} ({judgement.reference_rows:,}): {plain(verdict)}"
    )
    rows = make_table("column", "distance", "PSI", "p-value", "missing", "new values", "out of range", "tails")
    for column in judgement.columns[:_COLUMNS_SHOWN]:
        figures = (column.distance, column.psi, column.p_value)
        texts = ["" if figure is None else f"{figure:.4f}" for figure in figures]
        shares = [column.missing, (column.expected_new, column.new), (column.out_of_range,), column.tails]
        rows.add_row(plain(column.name), *texts, *map(_format_shares, shares))
    show(rows)


def _format_shares(shares: tuple[float | None, ...] | None) -> str:
    """Return a share, or the share to expect and the share in the requests; empty if it was not measured."""
    return " -> ".join(f"{share:.3f}" for share in shares or () if share is not None)


def _show_outcome(outcome: Outcome) -> None:
    if not outcome.slices:
        without = "none has a label yet" if outcome.keyed else "none has the key (monitor.key)"
        show(f"{_format_name(outcome)}: {outcome.rows:,} rows, {outcome.keyed:,} with a key, of which {without}")
        return
    verdict = "not judged: too few labels (monitor.least_rows)"
    if outcome.checks is not None:
        failed = "; ".join(map(str, outcome.failed))
        verdict = plain(failed, 400) if failed else "no bound exceeded" if outcome.checks else "no bounds"
    show(
        f"{_format_name(outcome)}: {outcome.labelled:,} of {outcome.rows:,} rows with a label "
        f"({outcome.keyed:,} with a key): {verdict}"
    )
    overall, *slices = outcome.slices
    evaluated = next((metrics.intervals for metrics in outcome.evaluated if not metrics.slice), {})
    rows = make_table("metric", "value", "95 % interval", "Evaluator", "its interval")
    for name, value in overall.metrics.items():
        before = overall.baseline.get(name)
        intervals = (_format_interval(overall.intervals.get(name)), _format_interval(evaluated.get(name)))
        rows.add_row(name, f"{value:.4f}", intervals[0], "" if before is None else f"{before:.4f}", intervals[1])
    show(rows)
    if slices:
        show(make_metric_table([overall, *slices], list(overall.metrics), {}))


def _format_name(outcome: Outcome) -> str:
    label = f", {outcome.label}" if outcome.label else ""
    return f"version {outcome.version}{label}"


def _show_difference(difference: VersionDifference) -> None:
    show(f"version {difference.b} minus version {difference.a}, {difference.units:,} keys with a label:")
    rows = make_table("metric", "difference", "95 % interval")
    for name, estimate in difference.metrics.items():
        rows.add_row(name, f"{estimate.value:+.4f}", _format_interval(estimate.interval))
    show(rows)


def _format_interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"


def _format_prometheus(result: Monitoring) -> str:
    """Return the figures in Prometheus' text exposition format."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def make_gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tfx_pipeline_monitor_{name}", text, labels, registry=registry)

    version_labels = ("version", "reference")
    column_labels = (*version_labels, "column")
    gauges = {
        "distance": make_gauge("distance", "Distance of a column from the reference, 0 to 1", *column_labels),
        "psi": make_gauge("psi", "Population stability index of a column", *column_labels),
        "p_value": make_gauge("p_value", "Corrected p-value of the test whether a column has changed", *column_labels),
        "missing": make_gauge("missing", "Share of rows without a value", *column_labels),
        "new": make_gauge("new", "Share of texts that the reference lacks", *column_labels),
        "out_of_range": make_gauge("out_of_range", "Share of numbers outside the reference's range", *column_labels),
        "tails": make_gauge("tails", "Share of numbers beyond the reference's 1 and 99 % quantiles", *column_labels),
        "drifted": make_gauge("drifted", "Whether a column has drifted", *column_labels),
    }
    rows = make_gauge("rows", "Rows in the window", *version_labels)
    for judgement in result.judgements:
        rows.labels(str(judgement.version), judgement.reference).set(judgement.rows)
        drifted = {finding.column for finding in judgement.findings or ()}
        for column in judgement.columns:
            figures = {"distance": column.distance, "psi": column.psi, "p_value": column.p_value}
            figures |= {"missing": column.missing[1], "drifted": float(column.name in drifted), "new": column.new}
            figures |= {"out_of_range": column.out_of_range, "tails": column.tails and column.tails[1]}
            for name, figure in figures.items():
                if figure is not None:
                    gauges[name].labels(str(judgement.version), judgement.reference, column.name).set(figure)
    labelled = make_gauge("labelled_rows", "Compared rows that have a label", "version", "label")
    value = make_gauge("metric", "Metric of the answers by labels that have arrived", "version", "slice", "metric")
    evaluated = make_gauge("evaluated_metric", "The Evaluator's value of the version", "version", "slice", "metric")
    exceeded = make_gauge("bound_exceeded", "Whether a metric exceeds a bound", "version", "metric")
    for outcome in result.outcomes:
        version = str(outcome.version)
        labelled.labels(version, outcome.label).set(outcome.labelled)
        for metrics in outcome.slices:
            for name, figure in metrics.metrics.items():
                value.labels(version, format_slice_name(metrics.slice), name).set(figure)
            for name, figure in metrics.baseline.items():
                evaluated.labels(version, format_slice_name(metrics.slice), name).set(figure)
        failed = {check.metric for check in outcome.failed}
        for name in {check.metric for check in outcome.checks or ()}:
            exceeded.labels(version, name).set(float(name in failed))
    return bytes(generate_latest(registry)).decode()
