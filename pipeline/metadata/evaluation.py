"""Reads what came out of an evaluation: the verdict of our gate, or the bare metrics of a stock Evaluator."""

from __future__ import annotations

from pathlib import Path

from components.evaluator import plots, verdict
from components.evaluator.plots import Plots
from components.evaluator.verdict import Measured, Verdict


def read(folder: str) -> tuple[tuple[Measured, ...], Verdict | None]:
    """What was measured, the whole split first, and the verdict.

    Args:
      folder: of a ModelEvaluation artifact.

    Returns:
      All slices, and the verdict; None where a stock Evaluator has taken the place of ours. Nothing, if the folder is
      gone.
    """
    file = Path(folder) / verdict.FILE
    if file.exists():
        said = Verdict.from_json(file.read_text(encoding="utf-8"))
        return said.slices, said
    if not Path(folder).is_dir():
        return (), None
    # Imported late: TFMA takes seconds, and a verdict is read without it.
    from components.evaluator import results

    found = results.read(folder)
    return tuple(sorted(found, key=lambda each: sorted(each.slice.items()))), None


def drawn(folder: str) -> Plots | None:
    """What curves and matrices are drawn from; None where our Evaluator has not written it down.

    Args:
      folder: of a ModelEvaluation artifact.
    """
    file = Path(folder) / plots.FILE
    return Plots.from_json(file.read_text(encoding="utf-8")) if file.exists() else None
