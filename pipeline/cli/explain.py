"""`runner.py explain [RUN]`: print what a model's predictions depend on, for all rows or for single rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.base.errors import InputError
from components.base.files import read_text
from components.base.names import did_you_mean
from components.results import version_manifest
from pipeline.cli import options as shared
from pipeline.cli.model_effects import show_dependence, show_selection
from pipeline.cli.output import make_table, print_json, show, suppress_native_stderr
from pipeline.core.text import plain
from pipeline.inspection.evaluation_tables import OVERALL, format_slice_name

if TYPE_CHECKING:
    from components.evaluator.importance import Estimate, Importance
    from pipeline.core.metadata.store import Run
    from pipeline.inspection.row_explanation import RowExplanation

_MAX_BYTES = 100_000_000
_TRAINING_ROWS = 100
"""Number of training rows to compare a row with."""
HELP = (
    "Print the importance of a model's columns, by slice; with --unneeded, the columns that it does not need; with "
    "--dependence, the mean prediction by value of a column; with --row or --rows, the contribution of each column to "
    "a prediction."
)
EXAMPLE = 'python runner.py explain latest --row \'{"age": 41, "plan": "basic"}\''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_run(parser)
    parser.add_argument(
        "--model", metavar="MODEL", help="NAME@VERSION, NAME@stable or NAME@canary: the run that pushed this version"
    )
    parser.add_argument("--slice", metavar="SLICE", default=OVERALL, help="importance in it, as 'plan = basic'")
    parser.add_argument(
        "--unneeded", action="store_true", help="columns that could be dropped, as a change of --config"
    )
    parser.add_argument("--apply", action="store_true", help="with --unneeded: also write the change to --config FILE")
    parser.add_argument(
        "--dependence",
        metavar="COLUMN",
        nargs="?",
        const="",
        help="how the prediction depends on this column, or on the most important ones; and interactions of columns",
    )
    parser.add_argument("--row", metavar="JSON", action="append", default=[], help="a row: column → value; repeatable")
    parser.add_argument("--rows", metavar="FILE", type=Path, help="a file with such a row on each line")
    parser.add_argument("--baseline", metavar="JSON", help="a row to compare with (default: the mean of training rows)")
    parser.add_argument(
        "--prediction", metavar="NAME", help="the output to explain, such as probability_click of several labels"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from components.features import graph_files
    from components.pusher.local_folder import local_copy
    from pipeline.inspection import run_summary
    from pipeline.inspection.row_explanation import parse_rows

    if options.apply and not (options.unneeded and options.config):
        raise InputError("--apply: expected --unneeded and --config FILE with it", "name the config to change")
    if options.model is None:
        opened, [selected] = shared.open_runs(options, options.run)
    else:
        opened, selected = _find_pushing_run(options)
    rows = parse_rows([*options.row, *(_read_lines(options.rows) if options.rows else [])])
    evaluations = opened.store.artifacts(selected.name, "ModelEvaluation")
    importance = run_summary.read_importance(evaluations[-1].uri) if evaluations else None
    if options.dependence is not None:
        dependence = run_summary.read_dependence(evaluations[-1].uri) if evaluations else None
        graphs = opened.store.artifacts(selected.name, "TransformGraph")
        classes = graph_files.read_label_classes(graphs[-1].uri) if graphs else []
        return show_dependence(selected, dependence, classes, options)
    if not rows and not options.rows:
        return _show_importance(selected, importance, options)
    models = opened.store.artifacts(selected.name, "Model")
    if not models:
        raise InputError(f"run {selected.name} did not produce a model", "name a run that has trained a model")
    with suppress_native_stderr(), local_copy(f"{models[-1].uri}/Format-Serving") as folder:
        from pipeline.inspection.row_explanation import RawModel
        from pipeline.inspection.training_rows import sample_training_rows

        model = RawModel(folder)
        if options.baseline:
            baselines, reference = parse_rows([options.baseline]), "the given baseline"
        elif baselines := sample_training_rows(opened.store, selected.name, model.columns, _TRAINING_ROWS):
            reference = f"the mean of {len(baselines):,} training rows"
        else:
            # The artifact with the rows was deleted, or the pipeline has no split with this name.
            baselines, reference = [dict(importance.typical) if importance else {}], "typical values"
        explanations = [model.explain(row, baselines, options.prediction) for row in rows]
    if options.json:
        described = [asdict(explanation) for explanation in explanations]
        print_json({"run": selected.name, "reference": reference, "rows": described})
        return 0
    for explanation in explanations:
        _show_row(explanation, reference)
    return 0


def _find_pushing_run(options: argparse.Namespace) -> tuple[shared.StoreSelection, Run]:
    """Return the store of the config's pipeline, and the run that pushed the version that --model names."""
    if options.store is not None:
        raise InputError("--model: expected a config with it, received --store", "name the run instead")
    loaded = shared.load_config(options)
    _, reference = shared.split_model_name(options.model, loaded)
    folder = shared.get_push_folder(loaded.config)
    manifest = version_manifest.read(folder.find(folder.resolve(reference)))
    opened = shared.open_config_store(loaded.config)
    return opened, opened.find_run(manifest.run)


def _read_lines(file: Path) -> list[str]:
    try:
        return read_text(file, _MAX_BYTES).splitlines()
    except OSError as error:
        raise InputError(f"--rows: {file} cannot be read: {error.strerror}", "name another file") from error


def _show_importance(selected: Run, importance: Importance | None, options: argparse.Namespace) -> int:
    if importance is None or importance.unknown:
        why = importance.unknown if importance else "it was not recorded"
        raise InputError(
            f"run {selected.name} has no importance of columns: {why}",
            "run the Evaluator again, or set evaluation.importance_rows; --row works without it",
        )
    if options.unneeded:
        return show_selection(selected, importance, options)
    by_name = {format_slice_name(slice_importance.slice): slice_importance for slice_importance in importance.slices}
    if options.slice not in by_name:
        raise InputError(
            f"--slice: nothing was measured for {options.slice!r}{did_you_mean(options.slice, by_name)}",
            f"name one of {', '.join(by_name)}; a slice needs evaluation.slices and min_examples rows of the sample",
        )
    in_slice = by_name[options.slice]
    if options.json:
        measurement = {"run": selected.name, "metric": importance.metric, "repeats": importance.repeats}
        print_json({**measurement, **asdict(in_slice)})
        return 0
    estimates: dict[str, list[Estimate | None]] = {
        "share": [column.share for column in in_slice.columns],
        f"increase of {importance.metric}": [column.loss for column in in_slice.columns],
        "decrease of auc": [column.auc for column in in_slice.columns],
    }
    # Omit empty columns: shares are measured for all rows only, and the AUC for binary tasks only.
    shown = {name: values for name, values in estimates.items() if any(values)}
    rows = make_table("column", *shown)
    for number, column in enumerate(in_slice.columns):
        rows.add_row(plain(column.column), *(_format_estimate(values[number]) for values in shown.values()))
    head = f"run {selected.name}, {plain(options.slice)}"
    show(f"{head}: {importance.metric} {in_slice.loss:.4g} in {in_slice.rows:,} rows", rows)
    return 0


def _format_estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    ends = "" if estimate.interval is None else " ({:.4f} to {:.4f})".format(*estimate.interval)
    return f"{estimate.value:.4f}{ends}"


def _show_row(explanation: RowExplanation, reference: str) -> None:
    rows = make_table("column", "value", "baseline", "contribution")
    for column in explanation.columns:
        error = f" ± {column.error:.2g}" if column.error else ""
        values = _format_value(column.value), _format_value(column.baseline)
        rows.add_row(plain(column.column), *values, f"{column.contribution:+.6f}{error}")
    predictions = f"{explanation.baseline:.6g} for {reference}, {explanation.prediction:.6g} for the row"
    show(f"{plain(explanation.output)}: {predictions}", rows)


def _format_value(value: Any) -> str:
    return "missing" if value is None else f"{value:.6g}" if isinstance(value, float) else plain(value, 60)
