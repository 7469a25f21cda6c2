"""What went wrong, told once: a headline, a remedy and the exit code a script can rely on.

An error may be raised deep inside a Beam worker or a task of a cluster, where only its text survives the way
back. So the text itself is regular, and `find` reads it out of any exception or log again:

    error[2]: trips.csv, row 7: expected 18 fields, received 17
      - 3 more rows of this file are ragged
      remedy: mend these rows, or leave them out
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator

MACHINE = 1
"""Exit code: our own fault, or the machine's (a full disk, a killed process)."""
INPUT = 2
"""Exit code: the user's config, data or code."""
GATE = 3
"""Exit code: everything worked, and a gate said no to the data or to the model."""


class PipelineError(Exception):
    """An error whose headline and remedy are fit for the screen.

    Args:
      headline: one line: where, what was expected, what was received.
      remedy: one line: what to do about it.
      details: further lines, one per finding, shown under the headline.
    """

    exit_code = MACHINE

    def __init__(self, headline: str, remedy: str, details: Iterable[str] = ()) -> None:
        self.headline = _one_line(headline)
        self.remedy = _one_line(remedy)
        self.details = tuple(_one_line(line) for line in details)
        super().__init__(str(self))

    def __str__(self) -> str:
        details = "".join(f"\n  - {line}" for line in self.details)
        return f"error[{self.exit_code}]: {self.headline}{details}\n  remedy: {self.remedy}"

    def __reduce__(self) -> tuple[type[PipelineError], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.headline, self.remedy, self.details)


class MachineError(PipelineError):
    """The machine, or this project, failed: a full disk, a store that does not open, a killed node."""


class InputError(PipelineError):
    """The config, the data or the user's own code has to change before the run can go on."""

    exit_code = INPUT


class GateError(PipelineError):
    """A gate refused the data or the model, as it was asked to."""

    exit_code = GATE


_BY_CODE: dict[int, type[PipelineError]] = {MACHINE: MachineError, INPUT: InputError, GATE: GateError}
_TOLD = re.compile(
    r"error\[(?P<code>[123])\]: (?P<headline>[^\n]+)"
    r"(?P<details>(?:\n\s+- [^\n]+)*)"
    # Beam puts where it was behind the text of an error.
    r"\n\s+remedy: (?P<remedy>[^\n]+?)(?: \[while running '[^'\n]*'\])*(?:\n|$)"
)
_DISK_FULL = re.compile(r"No space left on device|database or disk is full|Disk quota exceeded", re.IGNORECASE)


def find(error: BaseException) -> PipelineError | None:
    """The told error in an exception, in what caused it, or in the text that crossed a process boundary."""
    for link in _chain(error):
        if isinstance(link, PipelineError):
            return link
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT):
            return disk_full(link.filename)
        text = str(link)
        if told := _TOLD.search(text):
            details = [line.strip().removeprefix("- ") for line in told["details"].splitlines() if line.strip()]
            return _BY_CODE[int(told["code"])](told["headline"], told["remedy"], details)
        if _DISK_FULL.search(text):
            return disk_full(None)
    return None


def disk_full(where: object) -> MachineError:
    """The error for a file system without room; `where` is the path that could not be written, if known."""
    return MachineError(
        f"the disk is full: {where} could not be written"
        if where
        else "the disk is full: an output could not be written",
        "free some space, or let the run write elsewhere with --output DIR; then --resume the run",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it was raised from or while handling, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _one_line(text: str) -> str:
    return " ".join(str(text).split())
