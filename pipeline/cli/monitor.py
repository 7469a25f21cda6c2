"""`runner.py monitor`: whether served requests still look like the rows that the version was trained on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import GATE, InputError
from components.files import write_atomically
from pipeline.cli import notifications
from pipeline.cli import options as shared
from pipeline.cli.notifications import Notification
from pipeline.cli.output import print_json, show, suppress_native_stderr, table
from pipeline.core.text import plain
from pipeline.registry import versions

if TYPE_CHECKING:
    from components.monitor.judgement import Judgement
    from pipeline.authoring.config import Config

HELP = "Compare served requests with the rows that the version was trained on. Exit code 3 if a column has drifted."
_COLUMNS = 12
"""Columns of a version that the table has; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_config(parser)
    parser.add_argument("--requests", metavar="FOLDER", help="the request log (default: monitor.requests)")
    parser.add_argument("--prometheus", metavar="FILE", help="write the figures for Prometheus' textfile collector")
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    assigned = [] if options.requests is None else [f"monitor.requests=[{shared.quoted(options.requests)}]"]
    config = shared.load_config(options, *assigned).config
    with suppress_native_stderr():
        judged = judge(config)
    if options.prometheus:
        write_atomically(Path(options.prometheus), _metrics(judged))
    if options.json:
        print_json({"judgements": [asdict(each) for each in judged]})
    else:
        for each in judged:
            _show(each)
    for each in judged:
        if each.findings:
            notifications.send(config.notify, _drift(config.pipeline.name, each))
    return GATE if any(each.findings for each in judged) else 0


def _drift(pipeline: str, judged: Judgement) -> Notification:
    columns: dict[str, float] = {}
    for each in judged.findings or ():
        # Of several findings on a column, the first is its distance.
        columns.setdefault(each.column, each.value)
    drifted = ", ".join(f"{name} {value:.3f}" for name, value in columns.items())
    text = f"{pipeline}: requests to version {judged.version} have drifted: {plain(drifted)}"
    return Notification("drift", pipeline, None, text, {"span": None, "version": judged.version, "columns": columns})


def judge(config: Config) -> list[Judgement]:
    """Judges the newest requests to the pushed versions of a config.

    Raises:
      InputError: the config names no requests, or there are none of a pushed version.
    """
    # Imported late: these import TensorFlow.
    from pipeline.inspection import served_requests

    if config.monitor is None:
        raise InputError("expected a section monitor, or --requests, received none", "name the request log")
    push_folder = shared.push_folder_of(config)
    # A version with a damaged manifest does not serve, and has no run.
    runs = {
        entry.version: (entry.run, str(push_folder.find(entry.version)))
        for entry in versions.entries(push_folder)
        if entry.run
    }
    judged = served_requests.judge(shared.open_own(config).store, runs, config.monitor)
    if not judged:
        raise InputError(
            f"expected requests to a version of {push_folder.path} in the log, received none",
            "name the log of the server that serves this push folder",
        )
    return judged


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


def _metrics(judged: Iterable[Judgement]) -> str:
    """The figures in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    labels = ("version", "reference", "column")
    gauges = {
        name: Gauge(f"tfx_pipeline_monitor_{name}", text, labels, registry=registry)
        for name, text in (
            ("distance", "Distance of a column from the reference, 0 to 1"),
            ("psi", "Population stability index of a column"),
            ("p_value", "Corrected p-value of the test whether a column has changed"),
            ("missing", "Share of rows without a value"),
            ("drifted", "Whether a column has drifted"),
        )
    }
    rows = Gauge("tfx_pipeline_monitor_rows", "Rows in the window", labels[:2], registry=registry)
    for each in judged:
        of_version = (str(each.version), each.reference)
        rows.labels(*of_version).set(each.rows)
        drifted = {finding.column for finding in each.findings or ()}
        for column in each.columns:
            figures = {"distance": column.distance, "psi": column.psi, "p_value": column.p_value}
            figures |= {"missing": column.missing[1], "drifted": float(column.name in drifted)}
            for name, figure in figures.items():
                if figure is not None:
                    gauges[name].labels(*of_version, column.name).set(figure)
    return bytes(generate_latest(registry)).decode()
