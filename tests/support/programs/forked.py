"""Runs a small Beam pipeline in forked workers, and prints the results as JSON.

Its arguments: count|raise|wait WORKERS FOLDER.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import apache_beam as beam

from components.base.errors import InputError
from tests.support.servers.forked_command import ForkedCommand

ROOT = Path(__file__).parents[3]


def square(number: int, task: str, folder: str) -> tuple[int, int]:
    """Return the square of a number, and the ID of the process that computed it."""
    if task == "raise" and number == 7:
        raise InputError("seven was met", "leave it out")
    if task == "wait":
        Path(folder, str(os.getpid())).touch()
        while True:
            time.sleep(60)
    return number * number, os.getpid()


def note(results: list[tuple[int, int]], path: str) -> None:
    """Write the results to a file for the parent process."""
    Path(path).write_text(json.dumps(results))


def start(task: str, workers: str, folder: Path) -> ForkedCommand:
    """Start the program in a fork of the node server, as a run starts its nodes: Beam is imported, no thread runs."""
    return ForkedCommand(main, [task, workers, str(folder)], ROOT, os.environ)


def main(arguments: Sequence[str]) -> int:
    """Run the pipeline in this number of forked workers."""
    task, workers, folder = arguments
    argv = [
        "--runner=pipeline.orchestration.engines.forked_runner.ForkedRunner",
        f"--direct_num_workers={workers}",
        "--sdk_container_image=none",
    ]
    path = str(Path(folder) / "results.json")
    with beam.Pipeline(argv=argv) as pipeline:
        squares = (
            pipeline
            | beam.Create(list(range(100)))
            | beam.Reshuffle()
            | beam.Map(square, task, folder)
            | beam.combiners.ToList()
        )
        _ = squares | "Note" >> beam.Map(note, path)
    results = json.loads(Path(path).read_text())
    result = {"squares": sorted(value for value, _ in results), "workers": sorted({pid for _, pid in results})}
    sys.stdout.write(json.dumps(result | {"own": os.getpid()}) + "\n")
    return 0
