"""Asynchronous successive halving: which trials continue, decided from the losses that are known so far."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Promotion(NamedTuple):
    """A trial that continues.

    Attributes:
      trial: ID of the trial.
      rung: Number of the rung that it trains for next.
    """

    trial: str
    rung: int


class Halving:
    """The rungs of a search and the losses of its trials (Li et al. 2020, A System for Massively Parallel
    Hyperparameter Tuning, algorithm 2).

    A rung is a number of steps after which a trial is compared with other trials. A trial continues as soon as its loss
    is among the lowest 1/factor of the losses that its rung has so far. It does not wait for other trials, so a trial
    may continue that would not continue if all losses of the rung were known.

    Args:
      rungs: Number of rungs, at least 1. With one rung, every trial trains for all of its steps.
      factor: A rung promotes one of this number of trials.
    """

    def __init__(self, rungs: int, factor: int) -> None:
        self._factor = factor
        # Dictionaries keep the order of the reports, which decides between equal losses.
        self._losses: list[dict[str, float]] = [{} for _ in range(rungs)]
        self._promoted: list[set[str]] = [set() for _ in range(rungs)]

    @property
    def last(self) -> int:
        """Number of the last rung."""
        return len(self._losses) - 1

    def report(self, trial: str, rung: int, loss: float | None) -> None:
        """Add the loss of a trial at the end of a rung.

        Args:
          trial: ID of the trial.
          rung: Number of the rung.
          loss: The loss. A failed trial (None) and a loss that is not finite count as higher than all other losses, and
            never continue.
        """
        self._losses[rung][trial] = loss if loss is not None and math.isfinite(loss) else math.inf

    def promote(self, is_final: bool = False) -> Promotion | None:
        """Choose the next trial that continues, from the highest rung that has one. Each trial is returned once.

        Args:
          is_final: Whether no trial runs and no further trial will begin. If no trial has reached the last rung then,
            because there were too few trials, the best trial of the highest rung continues.

        Returns:
          The trial and its next rung; None if no trial continues now.
        """
        for rung in reversed(range(self.last)):
            count = len(self._losses[rung]) // self._factor
            for trial in self._rank(rung)[:count]:
                if trial not in self._promoted[rung]:
                    return self._promote(trial, rung)
        if is_final and not self._rank(self.last):
            paused = (
                (trial, rung)
                for rung in reversed(range(self.last))
                for trial in self._rank(rung)
                if trial not in self._promoted[rung] and not self._has_failed(trial)
            )
            return next((self._promote(trial, rung) for trial, rung in paused), None)
        return None

    def rank(self) -> list[str]:
        """Return the trials that have not failed, the best first: the highest rung, and in it the lowest loss."""
        trials: dict[str, None] = {}
        for rung in reversed(range(len(self._losses))):
            ranked = (trial for trial in self._rank(rung) if trial not in trials and not self._has_failed(trial))
            trials.update(dict.fromkeys(ranked))
        return list(trials)

    def find_rung(self, trial: str) -> int:
        """Return the rung that a trial trains for, or that it has reached."""
        promoted = [rung + 1 for rung, trials in enumerate(self._promoted) if trial in trials]
        return promoted[-1] if promoted else 0

    def has_reported(self, trial: str, rung: int) -> bool:
        """Return whether the loss of a trial at the end of a rung is known."""
        return trial in self._losses[rung]

    def list_losses(self, trial: str) -> list[float | None]:
        """Return the losses of a trial at the rungs that it has reached; None for a loss that is not finite."""
        losses = [by_trial[trial] for by_trial in self._losses if trial in by_trial]
        return [loss if math.isfinite(loss) else None for loss in losses]

    def get_state(self) -> dict[str, Any]:
        """Return the losses and the promotions as JSON values."""
        losses = [
            {trial: loss if math.isfinite(loss) else None for trial, loss in by_trial.items()}
            for by_trial in self._losses
        ]
        return {"losses": losses, "promoted": [sorted(trials) for trials in self._promoted]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_state` returned."""
        for rung, by_trial in enumerate(state["losses"]):
            for trial, loss in by_trial.items():
                self.report(trial, rung, loss)
        self._promoted = [set(trials) for trials in state["promoted"]]

    def _promote(self, trial: str, rung: int) -> Promotion:
        self._promoted[rung].add(trial)
        return Promotion(trial, rung + 1)

    def _rank(self, rung: int) -> list[str]:
        """Return the trials of a rung with a finite loss, the best first."""
        losses = self._losses[rung]
        return sorted((trial for trial, loss in losses.items() if math.isfinite(loss)), key=lambda trial: losses[trial])

    def _has_failed(self, trial: str) -> bool:
        """Return whether the loss of a trial at one of its rungs is not finite."""
        return any(math.isinf(by_trial.get(trial, 0.0)) for by_trial in self._losses)
