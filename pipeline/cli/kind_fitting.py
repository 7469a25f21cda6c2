"""Choice of the kind of model for `init`: fit candidates to a sample of the data within a time budget, and compare."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
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
from pipeline.orchestration.candidates import Candidate

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.authoring.config import Config

_SECONDS_TO_END = 1.0
"""Time to end the processes, write the config and print the decisions, in seconds."""


@dataclass(frozen=True)
class Fitting:
    """The chosen draft and the candidates that it was chosen from.

    Attributes:
      draft: The draft with the chosen kind of model.
      fits: The candidates that were fitted, simplest first.
      failures: Pairs of a kind that could not be fitted and the reason.
    """

    draft: Draft
    fits: tuple[Fit, ...] = ()
    failures: tuple[tuple[Kind, str], ...] = ()


def fit(draft: Draft, config: Path, budget: float, deadline: float) -> Fitting:
    """Fit candidate kinds of models, print the progress, and choose the best kind.

    A kind that was not fitted in time is not chosen, unless none was.

    Args:
      draft: The draft with the default kind for the table's size.
      config: File that contains the draft.
      budget: Time of the whole command in seconds, from which the number of rows follows.
      deadline: Time of the monotonic clock at which the command should end.

    Returns:
      The draft with the chosen kind, and the results of the candidates.

    Raises:
      KeyboardInterrupt: This process received SIGINT or SIGTERM. Child processes and temporary files are removed first.
    """
    rows = kind_choice.fitted_rows(draft.table.rows, budget)
    has_few_rows = kind_choice.has_few_rows(rows, len(draft.features), budget)
    kinds = defaults.candidates(draft.defaults, draft.table.rows, not has_few_rows)
    if not rows:
        return Fitting(_keep_kind(draft, f"in {budget:g} s too few of the rows can be fitted to replace it"))
    with _raise_on_sigterm(), tempfile.TemporaryDirectory() as scratch:
        file = f"{scratch}/rows.parquet"
        rows = kind_choice.write_rows(draft.table, rows, file)
        _print(f"fitting {', '.join(kinds)} to {rows:,} rows, within {budget:g} s in all; --budget 0 skips this")
        configs = {kind: _make_config(load(str(config)).config, draft, kind, rows, file, scratch) for kind in kinds}
        seconds = deadline - _SECONDS_TO_END - time.monotonic()
        results = candidates.fit(configs, Path(scratch, "logs"), seconds, lambda line: _print(f"  {line}"))
    fits = _list_fits(results)
    failures = tuple((kind, candidate.why) for kind, candidate in results.items() if candidate.why)
    chosen = _choose_kind(draft, fits, failures)
    if fits:
        chosen = chosen.with_bounds(min(fits, key=lambda candidate: candidate.loss))
    return Fitting(chosen, tuple(kind_choice.simplest_first(fits)), failures)


def make_tables(fitting: Fitting) -> Iterator[Table]:
    """Yield the table of the candidates; yield nothing if no candidate was tried."""
    from pipeline.cli.output import make_table

    if not (fitting.fits or fitting.failures):
        return
    metrics = list(fitting.fits[0].metrics) if fitting.fits else []
    grid = make_table("kind", "loss", "above the lowest", *metrics, "seconds")
    for candidate in fitting.fits:
        # A candidate without a time was trained as a part of another candidate, such as an ensemble.
        seconds = "as a part" if candidate.seconds is None else f"{candidate.seconds:.1f}"
        values = [f"{candidate.metrics[name]:.4g}" for name in metrics]
        excess = _format_excess_loss(candidate, fitting.fits)
        grid.add_row(candidate.kind, f"{candidate.loss:.4f}", excess, *values, seconds)
    for kind, reason in fitting.failures:
        grid.add_row(kind, "-", reason, *("" for _ in metrics), "")
    yield grid


def _list_fits(results: Mapping[Kind, Candidate]) -> list[Fit]:
    """Return the fitted kinds. A kind that was also fitted as a part of another candidate is listed once."""
    fits: dict[Kind, Fit] = {}
    for kind, candidate in results.items():
        for part, scores in candidate.scores.items():
            if part == kind:
                fits[part] = Fit(part, scores.losses, scores.metrics, candidate.seconds)
            else:
                fits.setdefault(part, Fit(part, scores.losses, scores.metrics))
    return list(fits.values())


def _choose_kind(draft: Draft, fits: list[Fit], failures: tuple[tuple[Kind, str], ...]) -> Draft:
    """Return the draft with the best kind; see `kind_choice.choose`.

    Args:
      draft: The draft with the default kind for the table's size.
      fits: The candidates that were fitted.
      failures: Pairs of a kind that could not be fitted and the reason.
    """
    kind = draft.defaults.model["kind"]
    if not fits:
        return _keep_kind(draft, f"it was not fitted: {dict(failures)[kind]}")
    default = next((candidate for candidate in fits if candidate.kind == kind), None)
    lowest = min(fits, key=lambda candidate: candidate.loss)
    winner = kind_choice.choose(fits, default or lowest)
    rows = f"{len(winner.losses):,} rows that were not trained on"
    if winner is lowest:
        reason = f"the lowest loss on {rows}"
    elif winner is default:
        reason = f"{draft.defaults.why_model}; no other kind's loss is lower by more than noise on {rows}"
    else:
        reason = f"as good as the lowest loss on {rows}, and simpler"
    if default is None:
        reason += f"; {kind} was not fitted: {dict(failures)[kind]}"
    figures = [
        f"{candidate.kind}: loss {candidate.loss:.4f}, {'' if candidate is lowest else 'above the lowest by '}"
        f"{_format_excess_loss(candidate, fits)}"
        for candidate in kind_choice.simplest_first(fits)
    ]
    return draft.with_kind(winner.kind, reason, figures)


def _format_excess_loss(fit: Fit, fits: list[Fit] | tuple[Fit, ...]) -> str:
    """Return how far the candidate's loss is above the lowest loss, with its standard error."""
    lowest = min(fits, key=lambda candidate: candidate.loss)
    if fit is lowest:
        return "the lowest"
    mean, error = Difference.of(fit, lowest)
    return f"{mean:.4f} ± {error:.4f}"


def _keep_kind(draft: Draft, reason: str) -> Draft:
    return draft.with_kind(draft.defaults.model["kind"], f"{draft.defaults.why_model}; {reason}")


def _make_config(config: Config, draft: Draft, kind: Kind, rows: int, file: str, output: str) -> Config:
    """Return the config of a candidate.

    Args:
      config: The config of the draft.
      draft: The draft, which decides about embeddings of IDs.
      kind: Kind of model of the candidate.
      rows: Number of rows in the sample.
      file: Parquet file with the sample.
      output: Folder for the outputs of the candidate's run.
    """
    size = draft.defaults.size._replace(rows=defaults.training_rows(rows, defaults.FITTED_SPLIT))
    model, training, _ = defaults.sections(kind, size, draft.task)
    data = {
        "path": (file,),
        "split": SplitConfig(**{**draft.defaults.split, **defaults.FITTED_SPLIT}),
        # The sample already contains numbers in place of formatted texts such as `1,200 EUR`.
        "csv": config.data.csv.model_copy(update={"formats": {}}),
    }
    sections: dict[str, Any] = {
        "data": config.data.model_copy(update=data),
        # The drafted schema describes all rows; the sample may lack columns that it requires.
        "schema_": config.schema_.model_copy(update={"path": None}),
        "model": ModelConfig.model_validate(model),
        "training": TrainingConfig.model_validate(training),
        "runtime": config.runtime.model_copy(update={"output": output}),
    }
    return config.model_copy(update=sections)


@contextlib.contextmanager
def _raise_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt, as SIGINT does, so that context managers in the block clean up."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
