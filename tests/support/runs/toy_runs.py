"""Runs toy pipelines on the local target without importing TFX here; can be run as a separate process."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.reporting import REPORTING
from pipeline.cli.run_output import Mode, ProgressDisplay, print_summary
from pipeline.core.records import RunResult
from pipeline.orchestration.local.scheduler import LocalJob, run
from tests.support.servers.forked_command import ForkedCommand

_SECONDS = 300
"""No test waits for this: it only keeps one that hangs from holding up all the others."""


def compile_in_child(folder: Path, shape: str, value: int, store: str = "") -> bytes:
    """Compile a toy pipeline in a process that has imported TFX."""
    from tests.support.runs.toy_pipelines import compile_toy

    return compile_toy(folder, shape, value, store)


def add_config(ir: bytes, config: str) -> bytes:
    """Add the text of a config to the run context of a compiled pipeline, as `compile_pipeline` does; imports TFX."""
    from tfx.proto.orchestration import pipeline_pb2

    from components.base import recorded_config

    pipeline = pipeline_pb2.Pipeline.FromString(ir)
    for node in pipeline.nodes:
        for context in node.pipeline_node.contexts.contexts:
            if context.type.name == "pipeline_run":
                for name, part in recorded_config.parts(config).items():
                    context.properties[name].field_value.string_value = part
    return bytes(pipeline.SerializeToString(deterministic=True))


def toy_job(folder: Path, shape: str = "chain", value: int = 1, store: str = "", **options: Any) -> LocalJob:
    """Return a job for `local.run`."""
    compile_ = functools.partial(compile_in_child, folder, shape, value, store)
    return LocalJob("toy", folder, compile_, REPORTING, **options)


def run_toy(
    folder: Path, shape: str = "chain", value: int = 1, store: str = "", screen: Mode = "plain", **options: Any
) -> RunResult:
    """Run a toy pipeline in this process."""
    return run(toy_job(folder, shape, value, store, **options), functools.partial(ProgressDisplay, screen))


def start_toy(folder: Path, shape: str = "chain", **options: Any) -> ForkedCommand:
    """Start a toy pipeline in a fork of the node server, with this environment; it prints its result as JSON."""
    arguments = (str(folder), shape, json.dumps({"screen": "json", **options}))
    return ForkedCommand(main, arguments, Path(__file__).parents[3], os.environ)


def result_of_toy(started: ForkedCommand) -> dict[str, Any]:
    """Wait for a started toy pipeline; return its result."""
    record: dict[str, Any] = json.loads(started.wait(_SECONDS)[1])
    return record


def main(arguments: Sequence[str]) -> int:
    """Run a toy pipeline, and print its result; arguments: FOLDER SHAPE OPTIONS, the options as JSON."""
    folder, shape, options = Path(arguments[0]), arguments[1], json.loads(arguments[2])
    result = run_toy(folder, shape, **options)
    print_summary(result, options.get("screen", "plain"))
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
