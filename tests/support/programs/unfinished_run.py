"""A run that takes one step per line on stdin, and writes its record as a real one does.

Reads the folder of a pipeline, then a step a line: a node and its state, or how the run ends. Writes the run's id, then
a line for every finished step. At the end it writes the contents of the run to its store.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.core.run_record import create_run
from tests.support.runs.report_runs import write_run

NODES = {"ExampleGen": (), "StatisticsGen": ("ExampleGen",), "Trainer": ("ExampleGen",), "Pusher": ("Trainer",)}


def main(folder: Path) -> None:
    """Execute steps until the input ends."""
    record = create_run(folder / "logs", "toy", (), ())
    sys.stdout.write(f"{record.run}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        subject, _, state = line.strip().partition(" ")
        if subject == "nodes":
            record.add_nodes(NODES)
        elif subject in record.nodes:
            node = record.nodes[subject]
            node.log.write_text(f"{subject} has begun\n")
            node.state, node.seconds, node.cpu_seconds, node.peak_memory_mb = state, node.seconds + 1.5, 2.5, 1234.0
        else:
            write_run(folder, record.run)
            record.state = subject
        record.save()
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.stdin.readline().strip()))
