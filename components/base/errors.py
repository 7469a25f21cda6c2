"""Errors that are shown to the user, with a headline, a remedy and an exit code.

If an error is raised in a Beam worker or in a task of a training cluster, only its text reaches the main process.
Therefore the text has a fixed format, and `find` parses it from any exception or log:

    error[2]: trips.csv, row 7: expected 18 fields, received 17
      - 3 more rows of this file are ragged
      remedy: fix or remove these rows

A gate can pass, refuse or fail. It passes or refuses only after all its measurements are complete; it then returns a
verdict, or raises a GateError to refuse. If it raises any other exception, it has failed.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable, Iterator

MACHINE = 1
"""Exit code for a fault of this project or of the machine, such as a full disk or a killed process."""
INPUT = 2
"""Exit code for a fault in the user's config, data or code."""
GATE = 3
"""Exit code for a run in which all nodes worked, but a gate rejected the data or the model."""


class PipelineError(Exception):
    """An error that is printed without a traceback.

    Args:
      headline: One line that says where the error is, what was expected, and what was received.
      remedy: One line that says what the user can do.
      details: Further lines, one per finding, which are printed below the headline.
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
    """The machine or this project failed, for example because the disk is full or a node was killed."""


class InputError(PipelineError):
    """The user has to change the config, the data or the user code before the run can continue."""

    exit_code = INPUT


class GateError(PipelineError):
    """A gate rejected the data or the model, as configured."""

    exit_code = GATE


_BY_CODE: dict[int, type[PipelineError]] = {MACHINE: MachineError, INPUT: InputError, GATE: GateError}
_ERROR_TEXT = re.compile(
    r"error\[(?P<code>[123])\]: (?P<headline>[^\n]+)"
    r"(?P<details>(?:\n\s+- [^\n]+)*)"
    # Beam appends the name of the failed step to the text of an error.
    r"\n\s+remedy: (?P<remedy>[^\n]+?)(?: \[while running '[^'\n]*'\])*(?:\n|$)"
)
_OUT_OF_MEMORY = re.compile(r"bad_alloc|MemoryError|ResourceExhausted|OOM when allocating|Cannot allocate memory")
_DISK_FULL = re.compile(r"No space left on device|database or disk is full|Disk quota exceeded", re.IGNORECASE)


def find(error: BaseException) -> PipelineError | None:
    """Find the PipelineError in an exception, in its causes, or in their texts.

    Args:
      error: Exception of any type. It may contain the text of an error in another process.

    Returns:
      The first PipelineError in the chain of causes. A MachineError if the disk is full. Otherwise None.
    """
    for link in _chain(error):
        if isinstance(link, PipelineError):
            return link
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT):
            return disk_full(link.filename)
        text = str(link)
        if match := _ERROR_TEXT.search(text):
            details = [line.strip().removeprefix("- ") for line in match["details"].splitlines() if line.strip()]
            return _BY_CODE[int(match["code"])](match["headline"], match["remedy"], details)
        if _DISK_FULL.search(text):
            return disk_full(None)
    return None


@contextlib.contextmanager
def errors_of_beam() -> Iterator[None]:
    """Convert the exceptions of a Beam pipeline, which contain only the text of a worker's error.

    If `find` finds a PipelineError in an exception, it is raised instead. Other exceptions, and PipelineErrors that
    were not raised in a worker, pass through unchanged.
    """
    try:
        yield
    except Exception as error:
        pipeline_error = find(error)
        if pipeline_error is None or pipeline_error is error:
            raise
        raise pipeline_error from error


def is_of_machine(text: str) -> bool:
    """Return whether an error is caused by the machine: the disk is full, or the memory is not sufficient.

    Args:
      text: Type and message of an exception, or the output of a process that has ended.
    """
    return bool(_DISK_FULL.search(text) or _OUT_OF_MEMORY.search(text))


def to_error(what: str, error: BaseException, remedy: str) -> PipelineError:
    """Convert an exception to a PipelineError.

    Args:
      what: Name of the operation that failed, for the headline.
      error: Exception of any type.
      remedy: Remedy if the exception does not contain a PipelineError.

    Returns:
      The PipelineError that `find` finds. Otherwise a MachineError with the type and the first line of the exception.
    """
    text = first_line(error) if str(error).strip() else ""
    return find(error) or MachineError(f"{what} failed: {type(error).__name__}: {text}", remedy)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, or the name of its type if the text is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def disk_full(where: object) -> MachineError:
    """Return the error for a full disk.

    Args:
      where: Path that could not be written. None if it is unknown.
    """
    return MachineError(
        f"the disk is full: {where} could not be written"
        if where
        else "the disk is full: an output could not be written",
        "free some space, or write the run to another disk with --output DIR; then --resume the run",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and then its causes. A cause that occurs again is not repeated."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _one_line(text: str) -> str:
    return " ".join(str(text).split())
