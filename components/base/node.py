"""What a node is to the rest of the program: its name, what it reads and writes, and how its result is shown.

A node's folder describes its nodes in `node.py`. The config, the run records, the terminal and the report use these
descriptors, and do not know a node that records a result by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ResultTable:
    """A table for the terminal and the report.

    Attributes:
      caption: What the rows are.
      header: Names of the columns. The first column has the names of the rows, the last one `pass` or `fail`.
      rows: Cells of each row.
      legend: How the figures were measured.
      notes: Sentences to show below the table, or without a table if it has no rows.
    """

    caption: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    legend: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Node:
    """A node of the pipeline.

    Attributes:
      name: Unique in the pipeline, such as `Trainer`.
      outputs: Keys of its output artifacts. A result is read from the first one.
      upstream: Names of the nodes that it depends on, as far as the pipeline has them.
      only_looks_up: Whether it only looks up an artifact of an earlier run, which does not have to exist.
    """

    name: str
    outputs: tuple[str, ...]
    upstream: tuple[str, ...] = ()
    only_looks_up: bool = False


class NodeWithResult(Node, Generic[ResultT]):
    """A node that records a result for the summary of a run.

    Attributes:
      result_file: Path of the result in the folder of the first output; "" if the output is a file.
    """

    result_file = ""

    def parse_result(self, text: str) -> ResultT:
        """Parse the content of the result's file."""
        raise NotImplementedError

    def to_json(self, result: ResultT) -> Mapping[str, Any]:
        """Return what `--json` prints of a result, as plain JSON values."""
        raise NotImplementedError

    def tabulate(self, result: ResultT) -> ResultTable | None:
        """Return the table of a result; None if it is not shown as a table."""

    def list_findings(self, result: ResultT) -> Sequence[str]:
        """Return what a reader of the last lines of a run has to know."""
        return ()
