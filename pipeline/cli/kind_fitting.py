"""The kind of model of a draft by evidence: `init` fits candidates within a budget, and the winner is proposed."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.ingest.config import SplitConfig
from components.models.config import Kind, ModelConfig
from components.trainer.config import TrainingConfig
from pipeline.authoring.config import load
from pipeline.authoring.scaffold import Draft, defaults, kind_choice
from pipeline.authoring.scaffold.kind_choice import Difference, Fit
from pipeline.orchestration import candidates

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.authoring.config import Config


@dataclass(frozen=True)
class Fitting:
    """The candidates of a draft.

    Attributes:
      draft: with the kind that was chosen.
      fits: the candidates that were fitted, the simplest first.
      failures: kind → why it was not fitted.
    """

    draft: Draft
    fits: tuple[Fit, ...] = ()
    failures: tuple[tuple[Kind, str], ...] = ()


def fit(draft: Draft, config: Path, seconds: float) -> Fitting:
    """Fits candidates, prints the progress, and chooses the kind.

    The kind for the size remains if it could not be fitted: that the others ended in time does not make them better.

    Args:
      draft: with the kind for its size.
      config: the file with the draft.
      seconds: the budget.

    Raises:
      KeyboardInterrupt: this process received SIGINT or SIGTERM; no child and no temporary file remains.
    """
    kinds = defaults.candidates(draft.defaults, draft.table.rows)
    rows = kind_choice.fitted_rows(draft.table.rows, seconds)
    if not rows:
        return Fitting(_unchanged(draft, f"in {seconds:g} s too few of the rows can be fitted to replace it"))
    with _sigterm_interrupts(), tempfile.TemporaryDirectory() as scratch:
        file = f"{scratch}/rows.parquet"
        rows = kind_choice.write_rows(draft.table, rows, file)
        _print(f"fits {', '.join(kinds)} to {rows:,} rows, for {seconds:g} s at most; --budget 0 does without")
        configs = {kind: _config(load(str(config)).config, draft, kind, rows, file, scratch) for kind in kinds}
        found = candidates.fit(configs, Path(scratch, "logs"), seconds, lambda line: _print(f"  {line}"))
    fits = [
        Fit(part, scores.losses, scores.metrics, candidate.seconds if part == kind else None)
        for kind, candidate in found.items()
        for part, scores in candidate.scores.items()
    ]
    failures = tuple((kind, candidate.why) for kind, candidate in found.items() if candidate.why)
    return Fitting(_chosen(draft, fits, failures), tuple(kind_choice.simplest_first(fits)), failures)


def tables(fitting: Fitting) -> Iterator[Table]:
    """Yields the table of the candidates, if there are any."""
    from pipeline.cli.output import table

    if not (fitting.fits or fitting.failures):
        return
    metrics = list(fitting.fits[0].metrics) if fitting.fits else []
    grid = table("kind", "loss", "above the lowest", *metrics, "seconds")
    for each in fitting.fits:
        seconds = "as a part" if each.seconds is None else f"{each.seconds:.1f}"
        values = [f"{each.metrics[name]:.4g}" for name in metrics]
        grid.add_row(each.kind, f"{each.loss:.4f}", _above(each, fitting.fits), *values, seconds)
    for kind, why in fitting.failures:
        grid.add_row(kind, "-", why, *("" for _ in metrics), "")
    yield grid


def _chosen(draft: Draft, fits: list[Fit], failures: tuple[tuple[Kind, str], ...]) -> Draft:
    kind = draft.defaults.model["kind"]
    own = next((each for each in fits if each.kind == kind), None)
    if own is None:
        return _unchanged(draft, f"it was not fitted: {dict(failures)[kind]}")
    lowest, winner = min(fits, key=lambda each: each.loss), kind_choice.choose(fits, own)
    rows = f"{len(winner.losses):,} rows that were not trained on"
    if winner is lowest:
        why = f"the lowest loss on {rows}"
    elif winner is own:
        why = f"{draft.defaults.why_model}; no other kind's loss is lower by more than noise on {rows}"
    else:
        why = f"as good as the lowest loss on {rows}, and simpler"
    figures = [
        f"{each.kind}: loss {each.loss:.4f}, {'' if each is lowest else 'above the lowest by '}{_above(each, fits)}"
        for each in kind_choice.simplest_first(fits)
    ]
    return draft.with_kind(winner.kind, why, figures)


def _above(fit: Fit, fits: list[Fit] | tuple[Fit, ...]) -> str:
    lowest = min(fits, key=lambda each: each.loss)
    if fit is lowest:
        return "the lowest"
    mean, error = Difference.of(fit, lowest)
    return f"{mean:.4f} ± {error:.4f}"


def _unchanged(draft: Draft, why: str) -> Draft:
    return draft.with_kind(draft.defaults.model["kind"], f"{draft.defaults.why_model}; {why}")


def _config(config: Config, draft: Draft, kind: Kind, rows: int, file: str, output: str) -> Config:
    """Returns a config with another kind of model, for a sample of its rows."""
    training_rows = defaults.training_rows(rows, defaults.FITTED_SPLIT)
    model, training, _ = defaults.sections(kind, training_rows, draft.defaults.many_ids)
    data = {
        "path": (file,),
        "split": SplitConfig(**defaults.FITTED_SPLIT),
        # The sample has numbers in place of the texts.
        "csv": config.data.csv.model_copy(update={"formats": {}}),
    }
    changed: dict[str, Any] = {
        "data": config.data.model_copy(update=data),
        # The curated schema describes all rows, and not only a sample.
        "schema_": config.schema_.model_copy(update={"path": None}),
        "model": ModelConfig.model_validate(model),
        "training": TrainingConfig.model_validate(training),
        "runtime": config.runtime.model_copy(update={"output": output}),
    }
    return config.model_copy(update=changed)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt, as SIGINT does, so that the block is left in order."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
