"""Output of a run: a table that updates in place in a terminal, or one line per change; then a summary."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from components.base import progress
from components.base.errors import PipelineError
from components.base.node import ResultTable
from components.evaluator.verdict import SliceMetrics
from components.tuner import trial_values
from pipeline.cli.output import make_table
from pipeline.core.nodes import NODES_WITH_RESULT
from pipeline.core.records import BLESSED, NOT_BLESSED, RunResult, RunSummary
from pipeline.core.run_record import RUNNING, NodeRecord, RunRecord
from pipeline.core.text import describe_approval, display_path, format_join, plain
from pipeline.inspection.evaluation_tables import (
    CheckRow,
    format_slice_name,
    group_by_label,
    make_check_rows,
    make_metric_rows,
    select_reference_values,
    split_metric_names,
)

Mode = Literal["live", "plain", "json"]

_STYLES = {
    "waiting": "dim",
    "running": "bold cyan",
    "cached": "blue",
    "done": "green",
    "skipped": "dim",
    "failed": "bold red",
    "interrupted": "yellow",
    "rejected": "yellow",
    "not run": "dim",
}
_SLICES_SHOWN = 12
_CHECKS_SHOWN = 12


class ProgressDisplay:
    """Display of the progress of a run.

    Args:
      mode: `live` redraws a table in place; `plain` prints a line per change; `json` prints nothing.
      record: Record of the run, which the run updates. The display reads it again at each change.
    """

    def __init__(self, mode: Mode, record: RunRecord) -> None:
        self._record = record
        self._plain = _make_console() if mode == "plain" else None
        self._live = Live(console=_make_console(), auto_refresh=False) if mode == "live" else None
        self._progress: dict[str, str] = {}

    def __enter__(self) -> ProgressDisplay:
        if self._plain:
            self._plain.print(f"run {self._record.run} of {self._record.pipeline}, logs in {self._record.folder}")
        if self._live:
            self._live.start()
            self.tick()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self.tick()
            self._live.stop()

    def node_changed(self, node: str | None) -> None:
        """Display the new state of a node, or of the run if `node` is None."""
        if self._plain and node is not None:
            self._plain.print(_format_node(self._record.nodes[node]))
        self.tick()

    def tick(self) -> None:
        """Redraw the table with the current figures of the running nodes, and display what they report."""
        if self._plain or self._live:
            self._read_progress()
        if self._live:
            self._live.update(_make_node_table(self._record, self._progress), refresh=True)

    def _read_progress(self) -> None:
        """Read the last reports of the running nodes, and print the new ones line by line without a live display."""
        running = [node for node in self._record.nodes.values() if node.state == RUNNING]
        reports = {node.id: report for node in running if (report := progress.read_last(node.log))}
        if self._plain:
            for name, report in reports.items():
                if self._progress.get(name) != report:
                    self._plain.print(plain(f"{name}: {report}"))
        # A node that has written much since its last report keeps it.
        before = {node.id: self._progress[node.id] for node in running if node.id in self._progress}
        self._progress = before | reports


def print_summary(result: RunResult, mode: Mode) -> None:
    """Print the result of a run; in `json` mode, print one JSON object to stdout and nothing else."""
    if mode == "json":
        sys.stdout.write(json.dumps(result.to_json()) + "\n")
        return
    console, summary = _make_console(), result.summary
    if summary.rows:
        console.print(_format_rows(summary))
    for join in summary.joins:
        console.print(format_join(join))
    if summary.column_types:
        counts = Counter(summary.column_types.values())
        console.print(f"columns: {', '.join(f'{count} {type_}' for type_, count in counts.most_common())}")
    if summary.quarantine:
        console.print(f"bad rows: {display_path(summary.quarantine)}")
    for warning in summary.describe_data_warnings():
        console.print(plain(f"warning: {warning}"))
    if summary.training.get("restarts") or summary.training.get("damaged"):
        console.print(_format_training(summary.training))
    if summary.tuned:
        console.print(f"tuned: {trial_values.one_line(summary.tuned)}")
    if summary.metrics:
        console.print(*_make_metric_tables(summary), sep="")
    for label, decision in summary.decisions.items():
        console.print(plain(f"decision{f' on {label}' if label else ''}: {decision}"))
    if summary.checks:
        console.print(make_checks_table(make_check_rows(summary.checks)))
    for name, node_result in summary.results.items():
        if table := NODES_WITH_RESULT[name].tabulate(node_result):
            console.print(render_result(table))
    console.print(_format_end(result))
    if result.error is not None:
        failed = next((node for node in result.nodes if node.error is result.error), None)
        console.print(format_error(result.error))
        log = failed.log if failed else result.logs and result.logs / "pipeline.log"
        if log is not None and log.exists():
            console.print(f"  log: {log}")


def format_error(error: PipelineError) -> Text:
    """Format an error for the terminal: its headline, details and remedy."""
    text = Text(f"error: {error.headline}", style="bold red")
    for detail in error.details:
        text.append(f"\n  - {detail}", style="default not bold")
    return text.append(f"\n  remedy: {error.remedy}", style="default not bold")


def _make_console() -> Console:
    # Users copy paths from the terminal, so rich must not break lines or color paths. Without a terminal, rich assumes
    # 80 columns and would truncate tables.
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)


def _format_node(node: NodeRecord) -> str:
    if node.state == RUNNING:
        return f"{node.id}: running"
    rows = "" if node.rows is None else f", {node.rows:,} rows"
    return (
        f"{node.id}: {node.state} in {node.seconds:.1f} s, {node.cpu_seconds:.1f} CPU-s, "
        f"{node.peak_memory_mb:,.0f} MB{rows}"
    )


def _make_node_table(record: RunRecord, progress_by_node: Mapping[str, str]) -> Group:
    table = make_table()
    table.add_column("node", min_width=18)
    table.add_column("state", min_width=8)
    for name in ("seconds", "CPU-s", "peak MB", "rows"):
        table.add_column(name, justify="right")
    for node in record.nodes.values():
        figures = _format_resources(node) if node.attempts or node.state == RUNNING else ("", "", "")
        rows = "" if node.rows is None else f"{node.rows:,}"
        table.add_row(node.id, Text(node.state, style=_STYLES.get(node.state, "")), *figures, rows)
    title = Text(f"run {record.run} of {record.pipeline}", style="bold")
    waiting = Text("TensorFlow and TFX are being imported …", style="dim")
    reports = [Text(plain(f"{name}: {report}"), style="dim") for name, report in progress_by_node.items()]
    return Group(title, table if record.nodes else waiting, *reports)


def _format_resources(node: NodeRecord) -> tuple[str, str, str]:
    return f"{node.seconds:.1f}", f"{node.cpu_seconds:.1f}", f"{node.peak_memory_mb:,.0f}"


def _format_rows(summary: RunSummary) -> str:
    text = ", ".join(f"{name} {count:,}" for name, count in {**summary.rows, **summary.rows_excluded}.items())
    return f"rows: {text}" + ("" if summary.rows_read is None else f" (of {summary.rows_read:,} read)")


def _format_training(training: dict[str, int]) -> str:
    """Format the numbers of restarts, repeated steps and damaged checkpoints of a training cluster; omit zeros."""
    titles = {"restarts": "restarts", "steps repeated": "repeated", "damaged checkpoints": "damaged"}
    counts = ", ".join(f"{title} {training[name]:,}" for title, name in titles.items() if training[name])
    return f"training: {training['steps']:,} steps ({counts})"


def _make_metric_tables(summary: RunSummary) -> list[Table]:
    """Return a table of metrics per label with a row per slice, then a table of the groups' rates if there are any."""
    rows = make_metric_rows(summary)
    quality, rates = split_metric_names(sorted(summary.metrics))
    references = select_reference_values(summary)
    tables = [make_metric_table(rows, names, references) for names in group_by_label(quality).values()]
    if rates:
        groups = [row for row in rows[1:] if row.metrics.keys() & set(rates)]
        tables.append(make_metric_table([rows[0], *groups], rates, {}))
    return tables


def make_metric_table(
    rows: Sequence[SliceMetrics], names: Sequence[str], references: Mapping[str, Mapping[str, float]]
) -> Table:
    """Return a table of metrics with a row per slice.

    Args:
      rows: Metrics per slice. The first entry is the slice of all rows. Further slices than the first 12 are counted.
      names: Names of the metrics to show. If all belong to one of several labels, as `click/auc`, the header of the
        first column is the label, and the other headers omit it.
      references: Name → metric → value of what the model is compared with, shown below the slice of all rows.
    """
    labels = list(group_by_label(names))
    label = labels[0] if len(labels) == 1 else ""
    table = make_table(label or "slice", numbers=("rows", *(name.removeprefix(f"{label}/") for name in names)))
    for row in rows[: 1 + _SLICES_SHOWN]:
        figures = [_format_number(row.metrics.get(name)) for name in names]
        table.add_row(format_slice_name(row.slice), f"{row.rows:,}", *figures)
        for reference, values in references.items() if not row.slice else ():
            table.add_row(reference, "", *(_format_number(values.get(name)) for name in names), style="dim")
    omitted = len(rows) - 1 - _SLICES_SHOWN
    if omitted > 0:
        table.add_row(f"… {omitted} more {'slice' if omitted == 1 else 'slices'}")
    return table


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4f}".rstrip("0").rstrip(".")


def make_checks_table(rows: Sequence[CheckRow]) -> Table:
    """Return a table of the checks: all that failed, then the first that passed.

    Args:
      rows: The checks of the gate, with failed checks first.
    """
    table = make_table("check", "slice", "expected", numbers=("value", "baseline"))
    table.add_column("")
    shown_count = sum(row.outcome == "fail" for row in rows) + _CHECKS_SHOWN
    for row in rows[:shown_count]:
        figures = [f"{value:.6g}" if value is not None else "" for value in (row.value, row.baseline)]
        table.add_row(row.metric, row.slice, row.bound, *figures, _format_outcome(row))
    if len(rows) > shown_count:
        table.add_row(f"… {len(rows) - shown_count} more passed")
    return table


def render_result(result: ResultTable) -> Group:
    """Return the table of a node's result, with its notes below."""
    table = make_table(*result.header[:1], numbers=result.header[1:-1])
    table.add_column(*result.header[-1:])
    for *cells, outcome in result.rows:
        table.add_row(*cells, Text(outcome, style="green" if outcome == "pass" else "bold red"))
    return Group(*([table] if result.rows else []), *(f"  - {note}" for note in result.notes))


def _format_outcome(row: CheckRow) -> Text:
    if row.outcome == "not judged":
        return Text(str(row.why), style="dim")
    outcome = Text(row.outcome, style="green" if row.outcome == "pass" else "bold red")
    return outcome.append(f" ({row.why})", style="default") if row.why else outcome


def _format_end(result: RunResult) -> Text:
    text = Text(f"{result.state} in {result.seconds:.1f} s", style=_STYLES.get(result.state, ""))
    summary = result.summary
    failed = [check for check in summary.checks if not check.passed]
    if summary.verdict in (BLESSED, NOT_BLESSED):
        count = f"{len(failed)} check{'' if len(failed) == 1 else 's'}"
        forced = f" by force: {summary.forced}; {count} failed" if summary.forced else ""
        text.append(f"; the model is {summary.verdict}{forced}", style="default")
    for check in failed:
        text.append(f"\n  - {check}", style="default")
    for warning in (*summary.warnings, *filter(None, [summary.missed_classes])):
        text.append(f"\n  - warning: {warning}", style="default")
    for name, node_result in summary.results.items():
        for finding in NODES_WITH_RESULT[name].list_findings(node_result):
            text.append(f"\n  - {finding}", style="default")
    if summary.serving is not None:
        text.append(f"\n{summary.serving}", style="default")
    if summary.pushed:
        text.append(f"\nmodel pushed to {summary.pushed}", style="default")
    if summary.awaits_approval:
        text.append(f"\nthe model is not pushed yet; {describe_approval(result.run)}", style="default")
    if result.state in ("failed", "interrupted") and result.nodes:
        text.append(f"\n--resume {result.run} continues from where it stopped", style="default")
    if result.report is not None:
        text.append(f"\nreport: {display_path(result.report)}", style="default")
    return text
