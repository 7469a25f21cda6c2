"""`runner.py models approve`: publish the blessed model of a run that waits for an approval."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from components.base.errors import InputError, PipelineError
from pipeline.cli.options import LATEST, add_config, add_json, load_config, open_config_store
from pipeline.cli.output import print_json, show, suppress_native_stderr
from pipeline.core.text import plain
from pipeline.registry import approval, promotion
from pipeline.registry.versions import PushFolder

if TYPE_CHECKING:
    from pipeline.cli.options import StoreSelection
    from pipeline.core.metadata.store import Run

HELP = (
    "Publish the model of a run that waits for an approval (push.approval: required), and record who approved it, when "
    "and why. A model that is not blessed, or whose files have changed since its evaluation, is refused with exit code "
    "3. If the model is approved already, its approval is printed and does not change."
)
EXAMPLE = "python runner.py models approve 20261128T082211-013430-ce05 --by 'Ana Diaz' --note 'checked the slices'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="id of the run, or the beginning of it; `models` lists the runs that wait"
    )
    parser.add_argument("--by", metavar="NAME", help="name of the person who approves; it is not authenticated")
    parser.add_argument("--note", metavar="TEXT", help="the reason")
    parser.add_argument(
        "--check",
        action="store_true",
        help="do not approve; only check whether the model waits for an approval. Exit code 3 if it does not, because "
        "it is not blessed or approved already",
    )
    add_config(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    if options.check == (options.by is not None or options.note is not None):
        raise InputError(
            "expected --by NAME --note TEXT, or only --check", "see python runner.py models approve --help"
        )
    if not options.check and None in (options.by, options.note):
        raise InputError("expected both --by NAME and --note TEXT", "see python runner.py models approve --help")
    if options.run == LATEST:
        raise InputError(
            "RUN: expected the id of a run, received latest, which may be another run than the one that was checked",
            "copy the id from the output of the run, or from `python runner.py models`",
        )
    opened = open_config_store(load_config(options).config)
    selected = opened.find_run(options.run)
    if options.check:
        approval.check_pending(opened.store, selected)
        if options.json:
            print_json({"run": selected.name, "waits": True})
        else:
            show(f"run {plain(selected.name)}: the model waits for an approval")
        return 0
    version = approval.approve(opened.location, opened.store, selected, options.by, options.note)
    _rewrite_report(opened, selected)
    if options.json:
        fields = asdict(version) | {"approval": version.approval.model_dump()}
        print_json(fields)
        return 0
    verb = "approved" if version.is_new else "was approved before,"
    stages = promotion.describe(PushFolder(version.directory, None).state())
    show(
        f"{version.directory}: version {version.version} {verb} by {plain(version.approval.by)} at "
        f"{version.approval.at}; {stages}"
    )
    return 0


def _rewrite_report(opened: StoreSelection, selected: Run) -> None:
    """Write the report of the run again, which then names the approver. A failure does not undo the approval."""
    from pipeline.cli.reporting import write_report

    if not (opened.logs / selected.name).is_dir():
        return
    try:
        with suppress_native_stderr():
            write_report(opened.store, opened.logs, selected.name)
    except PipelineError as error:
        sys.stderr.write(f"warning: the report of the run does not show the approval: {error.headline}\n")
