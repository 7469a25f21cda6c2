"""Shows a run: a live table in a terminal, one line per change elsewhere, and at the end what came out of it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from components.errors import PipelineError
from components.evaluator.config import RATES
from components.evaluator.verdict import Check, Measured, format_slice
from components.tuner import trial_values
from pipeline.core.records import BLESSED, NOT_BLESSED, RunResult, RunSummary
from pipeline.core.run_record import RUNNING, NodeRecord, RunRecord
from pipeline.core.text import shown

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


class Screen:
    """What is shown while a run goes on.

    Args:
      mode: `live` redraws a table; `plain` writes a line per change; `json` shows nothing.
      record: the run, read anew at each change.
    """

    def __init__(self, mode: Mode, record: RunRecord) -> None:
        self._record = record
        self._plain = _console() if mode == "plain" else None
        self._live = Live(console=_console(), auto_refresh=False) if mode == "live" else None

    def __enter__(self) -> Screen:
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
        """A node, or with None the run as a whole, has another state than before."""
        if self._plain and node is not None:
            self._plain.print(_line(self._record.nodes[node]))
        self.tick()

    def tick(self) -> None:
        """Time has passed: the figures of the running nodes have grown."""
        if self._live:
            self._live.update(_table(self._record), refresh=True)


def summary(result: RunResult, mode: Mode) -> None:
    """Prints how the run ended; in `json` mode exactly one JSON object, and nothing else, to stdout."""
    if mode == "json":
        sys.stdout.write(json.dumps(result.to_json()) + "\n")
        return
    console = _console()
    if result.facts.rows:
        console.print(_rows_line(result.facts))
    if result.facts.column_types:
        console.print(_columns_line(result.facts))
    if result.facts.quarantine:
        console.print(f"bad rows: {shown(result.facts.quarantine)}")
    if result.facts.training.get("restarts") or result.facts.training.get("damaged"):
        console.print(_training_line(result.facts.training))
    if result.facts.tuned:
        console.print(f"tuned: {trial_values.one_line(result.facts.tuned)}")
    if result.facts.metrics:
        console.print(*_metrics(result.facts), sep="")
    if result.facts.checks:
        console.print(_checks(result.facts))
    console.print(_end(result))
    if result.error is not None:
        failed = next((node for node in result.nodes if node.error is result.error), None)
        console.print(format_error(result.error))
        log = failed.log if failed else result.logs and result.logs / "pipeline.log"
        if log is not None and log.exists():
            console.print(f"  log: {log}")


def format_error(error: PipelineError) -> Text:
    """An error for the terminal: headline, details, remedy."""
    text = Text(f"error: {error.headline}", style="bold red")
    for detail in error.details:
        text.append(f"\n  - {detail}", style="default not bold")
    return text.append(f"\n  remedy: {error.remedy}", style="default not bold")


def _console() -> Console:
    # Paths are copied from the screen: they are not to be broken into lines or coloured to pieces.
    # Where there is no terminal there is no width either, and a table is not to be cut at the usual 80 columns.
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)


def _line(node: NodeRecord) -> str:
    if node.state == RUNNING:
        return f"{node.id}: running"
    rows = "" if node.rows is None else f", {node.rows:,} rows"
    return (
        f"{node.id}: {node.state} in {node.seconds:.1f} s, {node.cpu_seconds:.1f} CPU-s, "
        f"{node.peak_memory_mb:,.0f} MB{rows}"
    )


def _table(record: RunRecord) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("node", min_width=18)
    table.add_column("state", min_width=8)
    for name in ("seconds", "CPU-s", "peak MB", "rows"):
        table.add_column(name, justify="right")
    for node in record.nodes.values():
        figures = _figures(node) if node.attempts or node.state == RUNNING else ("", "", "")
        rows = "" if node.rows is None else f"{node.rows:,}"
        table.add_row(node.id, Text(node.state, style=_STYLES.get(node.state, "")), *figures, rows)
    title = Text(f"run {record.run} of {record.pipeline}", style="bold")
    waiting = Text("TensorFlow and TFX are being imported …", style="dim")
    return Group(title, table if record.nodes else waiting)


def _figures(node: NodeRecord) -> tuple[str, str, str]:
    return f"{node.seconds:.1f}", f"{node.cpu_seconds:.1f}", f"{node.peak_memory_mb:,.0f}"


def _rows_line(facts: RunSummary) -> str:
    others = {"quarantined": facts.rows_quarantined, "in a gap": facts.rows_left_out}
    counts = facts.rows | {name: count for name, count in others.items() if count}
    text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return f"rows: {text}" + ("" if facts.rows_read is None else f" (of {facts.rows_read:,} read)")


def _columns_line(facts: RunSummary) -> str:
    counts = Counter(facts.column_types.values())
    text = ", ".join(f"{count} {type_}" for type_, count in sorted(counts.items(), key=lambda one: -one[1]))
    return f"columns: {text}"


def _training_line(training: dict[str, int]) -> str:
    """Restarts, repeated steps and damaged checkpoints of a training cluster; only those that occurred."""
    labels = {"restarts": "restarts", "steps repeated": "repeated", "damaged checkpoints": "damaged"}
    counts = ", ".join(f"{words} {training[name]:,}" for words, name in labels.items() if training[name])
    return f"training: {training['steps']:,} steps ({counts})"


def _metrics(facts: RunSummary) -> Iterator[Table]:
    """Metrics across, slices down; and the same for the rates of groups, if there are any."""
    whole = Measured({}, facts.rows_evaluated or 0, facts.metrics, {})
    rates = sorted(set(facts.metrics) & set(RATES))
    yield _measured([whole, *facts.slices], sorted(set(facts.metrics) - set(RATES)))
    if rates:
        yield _measured([whole, *(each for each in facts.slices if set(each.metrics) & set(RATES))], rates)


def _measured(slices: Sequence[Measured], names: Sequence[str]) -> Table:
    """Only the largest table that still reads well."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("slice")
    for name in ("rows", *names):
        table.add_column(name, justify="right")
    for each in slices[: 1 + _SLICES_SHOWN]:
        figures = [_number(each.metrics.get(name)) for name in names]
        table.add_row(format_slice(each.slice) or "overall", f"{each.rows:,}", *figures)
    left_out = len(slices) - 1 - _SLICES_SHOWN
    if left_out > 0:
        table.add_row(f"… {left_out} more slices")
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4f}".rstrip("0").rstrip(".")


def _counted(checks: list[Check]) -> str:
    return f"{len(checks)} check{'' if len(checks) == 1 else 's'}"


def _checks(facts: RunSummary) -> Table:
    """The verdict: each bound and whether the model keeps it; those that failed come first, and all of them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "slice", "expected"):
        table.add_column(name)
    for name in ("value", "baseline"):
        table.add_column(name, justify="right")
    table.add_column("")
    failed = [check for check in facts.checks if not check.passed]
    passed = [check for check in facts.checks if check.passed]
    for check in (*failed, *passed[:_CHECKS_SHOWN]):
        figures = [f"{value:.6g}" if value is not None else "" for value in (check.value, check.baseline)]
        table.add_row(check.metric, format_slice(check.slice) or "overall", check.bound, *figures, _outcome(check))
    left_out = len(passed) - _CHECKS_SHOWN
    if left_out > 0:
        table.add_row(f"… {left_out} more passed")
    return table


def _outcome(check: Check) -> Text:
    if not check.judged:
        return Text(str(check.why), style="dim")
    outcome = Text("pass", style="green") if check.passed else Text("fail", style="bold red")
    return outcome.append(f" ({check.why})", style="default") if check.why else outcome


def _end(result: RunResult) -> Text:
    text = Text(f"{result.state} in {result.seconds:.1f} s", style=_STYLES.get(result.state, ""))
    facts = result.facts
    failed = [check for check in facts.checks if not check.passed]
    if facts.verdict in (BLESSED, NOT_BLESSED):
        forced = f" by force: {facts.forced}; {_counted(failed)} failed" if facts.forced else ""
        text.append(f"; the model is {facts.verdict}{forced}", style="default")
    for check in failed:
        text.append(f"\n  - {check}", style="default")
    if facts.serving is not None:
        text.append(f"\n{facts.serving}", style="default")
    if facts.pushed:
        text.append(f"\nmodel pushed to {facts.pushed}", style="default")
    if result.state in ("failed", "interrupted") and result.nodes:
        text.append(f"\n--resume {result.run} goes on from where it stopped", style="default")
    if result.report is not None:
        text.append(f"\nreport: {shown(result.report)}", style="default")
    return text
