"""A Beam pipeline on an engine whose elements wait for a file, so that a test can kill something meanwhile.

Its arguments: the options of Beam, and FOLDER. Each worker writes a file with its process id to FOLDER/workers, and its
elements wait for FOLDER/go; `raise` instead of `go` makes them fail. The result is in FOLDER/result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import apache_beam as beam

from pipeline.orchestration import current_node
from tests.support.servers.forked_command import ForkedCommand

ROOT = Path(__file__).parents[3]
ELEMENTS = 20


def start(options: Sequence[str], folder: Path) -> ForkedCommand:
    """Start the program in a fork of the node server, as a run starts its nodes."""
    (folder / "workers").mkdir(parents=True)
    return ForkedCommand(main, [*options, str(folder)], ROOT, os.environ)


def main(arguments: Sequence[str]) -> int:
    """Run the pipeline."""
    *options, folder = arguments
    current_node.begin("test", Path(folder).name, "Node")
    with beam.Pipeline(argv=options) as pipeline:
        numbers = pipeline | beam.Create(range(ELEMENTS)) | beam.Reshuffle()
        total = numbers | "Wait" >> beam.Map(_wait_for_go, folder) | beam.CombineGlobally(sum)
        _ = total | "Write" >> beam.Map(_write, folder)
    return 0


def result(folder: Path) -> str:
    """Return what the pipeline has written."""
    return (folder / "result").read_text()


def workers(folder: Path) -> list[int]:
    """Return the processes of the workers that have received an element."""
    return [int(file.name) for file in (folder / "workers").iterdir()]


def _wait_for_go(number: int, folder: str) -> int:
    Path(folder, "workers", str(os.getpid())).touch()
    while not Path(folder, "go").exists():
        if Path(folder, "raise").exists():
            raise ValueError("this element cannot be processed")
        time.sleep(0.05)
    return number


def _write(total: int, folder: str) -> None:
    Path(folder, "result").write_text(str(total))
