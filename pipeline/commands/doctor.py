"""The verb `doctor`: a table of what this machine has, what a run needs, and how to mend what is wrong."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.errors import MACHINE
from pipeline.doctor import Finding, State, examine

HELP = "check Python, glibc, the TFX line, memory, disk and credentials; say how to mend what is wrong"

_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "bad": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("--output", type=Path, default=Path("out"), metavar="DIR", help="where runs will write")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    """Examines the machine and tells; 0 if a run can start, 1 if something has to be mended first."""
    findings = examine(args.output)
    states = {finding.state for finding in findings}
    console = Console()
    if args.json:
        worst: State = "bad" if "bad" in states else "warn" if "warn" in states else "ok"
        told = {"state": worst, "findings": [asdict(finding) for finding in findings]}
        console.out(json.dumps(told), highlight=False)
    else:
        _show(findings, console)
    return MACHINE if "bad" in states else 0


def _show(findings: list[Finding], console: Console) -> None:
    table = Table("check", "found", "needed", "state")
    for finding in findings:
        colour = _COLOURS[finding.state]
        table.add_row(
            finding.check, escape(finding.found), escape(finding.needed), f"[{colour}]{finding.state}[/{colour}]"
        )
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"{finding.check}: {finding.remedy}", highlight=False, markup=False, soft_wrap=True)
