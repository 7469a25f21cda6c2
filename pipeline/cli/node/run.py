"""`runner.py node run`: run one node of a compiled pipeline; orchestrators call it."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from components.base.errors import InputError
from pipeline.cli.local_paths import parse_local_file

if TYPE_CHECKING:
    from pipeline.core.records import NodeOutcome
    from pipeline.orchestration.single_node import NodeJob

HELP = "Run one node of a compiled pipeline, as an orchestrator does. Exit code 0: done, 3: skipped, 1: failed."
EXAMPLE = "python runner.py node run --pipeline pipeline.pb --node Trainer --run-id nightly-1"
SKIPPED_CODE = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pipeline", metavar="FILE", required=True, help="the pipeline, as `node compile` or --airflow has written it"
    )
    parser.add_argument("--node", metavar="NODE", required=True, help="the node")
    parser.add_argument("--run-id", metavar="RUN", required=True, help="the run; all its nodes and attempts share it")
    parser.add_argument(
        "--span",
        metavar="N",
        type=_parse_span,
        help="the newest span to take: a number; a day such as 2026-01-31, or today, which stand for the number of "
        "days since 1970-01-01; or newest (default: newest)",
    )
    parser.add_argument(
        "--logs",
        metavar="DIR",
        type=parse_local_file,
        help="folder with a folder per run (default: next to the artifacts)",
    )
    parser.add_argument(
        "--executor-input",
        metavar="JSON",
        help="describe the outputs to Kubeflow Pipelines, which passes this JSON in place of {{$}}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def _parse_span(text: str) -> int | None:
    """Parse the number or the day of a span; return None for `newest`."""
    if text == "newest":
        return None
    if text.isdecimal():
        return int(text)
    try:
        day = datetime.now(timezone.utc).date() if text == "today" else date.fromisoformat(text)
    except ValueError as error:
        expected = "expected a number, a day such as 2026-01-31, today or newest"
        raise argparse.ArgumentTypeError(f"{expected}; received {text!r}") from error
    return (day - date(1970, 1, 1)).days


def _notify(job: NodeJob, outcome: NodeOutcome) -> None:
    """Call the notification hooks of the pipeline's config, which the compiled pipeline contains."""
    from pipeline.authoring.config.notify import NotifyConfig
    from pipeline.cli import notifications
    from pipeline.core import run_record
    from pipeline.orchestration import node

    pipeline, config = node.config_of(job.ir)
    hooks = [NotifyConfig.model_validate(hook) for hook in json.loads(config or "{}").get("notify", ())]
    if hooks:
        record = run_record.read_record(job.folder.parent, job.run) or {}
        notifications.send_node(hooks, pipeline, job.run, job.node, outcome, record)


def run(options: argparse.Namespace) -> int:
    """Run the node.

    Returns:
      0 if the node is done, 3 if it was skipped, 1 if it failed.

    Raises:
      InputError: The file is not a compiled pipeline, or the pipeline does not contain the node.
      MachineError: The metadata store cannot be opened.
    """
    from components.compat.imports import speed_up_imports
    from components.compat.tensorflow import set_environment
    from pipeline.core.records import FAILED, SKIPPED

    if not options.run_id or "/" in options.run_id or options.run_id.startswith("."):
        raise InputError(
            f"--run-id: expected a valid folder name, received {options.run_id!r}", "remove slashes and leading dots"
        )
    try:
        ir = Path(options.pipeline).read_bytes()
    except OSError as error:
        raise InputError(
            f"--pipeline: {options.pipeline} cannot be read: {error.strerror}", "write it with `runner.py node compile`"
        ) from error
    # Both must precede the first import of TensorFlow and TFX.
    set_environment()
    speed_up_imports()
    from components.compat.beam import cache_introspection
    from pipeline.cli.reporting import REPORTING
    from pipeline.orchestration import root_folder, single_node

    cache_introspection()
    ir = root_folder.ir_with_root(ir, Path.cwd())
    job = single_node.NodeJob(ir, options.node, options.run_id, REPORTING, options.logs, options.span)
    outcome = single_node.run(job)
    _notify(job, outcome)
    if options.executor_input and outcome.state != FAILED:
        from pipeline.core.metadata.connection import open_reader
        from pipeline.inspection import kubeflow_outputs
        from pipeline.orchestration import node

        # Not `node.open_store`: Kubeflow shows URLs of artifacts in an object store, which outlive this container.
        store = open_reader(node.store_of(node.load(ir, job.run)))
        kubeflow_outputs.write(store, job.run, job.folder / "report.html", options.executor_input)
    if options.json:
        json.dump(
            {"node": options.node, "run": options.run_id, "state": outcome.state, "rows": outcome.rows}, sys.stdout
        )
        sys.stdout.write("\n")
    if outcome.state == FAILED and outcome.error is not None:
        from pipeline.core.text import print_error

        print_error(outcome.error)
        # Not the error's exit code: an orchestrator takes 3 for a skipped node.
        return 1
    sys.stderr.write(f"{options.node}: {outcome.state}\n")
    return SKIPPED_CODE if outcome.state == SKIPPED else 0
