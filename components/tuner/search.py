"""The tuner_fn that TFX's Tuner calls: KerasTuner chooses the values, and our own training loop tries them.

KerasTuner imports Keras 3, for models that it never sees here: an oracle and its hyperparameters are all that is used,
and what they tell of is built and trained by tf_keras, as the Trainer does it.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import tempfile
import time
from typing import Any

import keras_tuner
import tensorflow as tf
import tf_keras
from tfx.components.tuner.component import TunerFnResult

from components.errors import InputError, find
from components.trainer import strategy
from components.trainer.fit import NotFiniteError
from components.trainer.plan import TrainingPlan
from components.trainer.training import Training
from components.tuner.config import TuneConfig
from components.tuner.plan import TuningPlan
from components.tuner.values import plain, shown

PATH = f"{__name__}.tuner_fn"
"""Import path for TFX's Tuner."""

TRIALS = "trials.json"
"""The file in the `tuner_results` artifact with every trial."""

_LOSS = "loss"
_PROJECT = "search"


def tuner_fn(fn_args: Any) -> TunerFnResult:
    """The search that a plan asks for; one that was interrupted goes on in its folder.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TuningPlan as JSON, `working_dir` the search's own folder.
    """
    plan = TuningPlan.model_validate_json(fn_args.custom_config["plan"])
    strategy.prepare(None, plan.trial.training.precision)
    logging.info(
        "up to %d trials of %d steps, one after the other, each in this process alone whatever training.strategy says",
        plan.tune.trials,
        plan.trial.training.steps,
    )
    return TunerFnResult(tuner=Search(plan, fn_args), fit_kwargs={})


def space(tune: TuneConfig) -> keras_tuner.HyperParameters:
    """The values to try, as KerasTuner takes them."""
    found = keras_tuner.HyperParameters()
    for name, values in tune.values().items():
        told = values.told
        if values.way == "choice":
            # It knows no lists, so one becomes its JSON.
            found.Choice(name, [json.dumps(each) if isinstance(each, tuple) else each for each in told])
        elif values.way == "int":
            found.Int(name, *told)
        else:
            found.Float(name, *told, sampling=values.way)
    return found


class Search(keras_tuner.engine.base_tuner.BaseTuner):  # type: ignore[misc]
    """Trials, one after the other in this process, each a training of its own; the loss on the eval split decides.

    Args:
      plan: what a trial is, and what is tried.
      fn_args: TFX's FnArgs.
    """

    def __init__(self, plan: TuningPlan, fn_args: Any) -> None:
        self._plan, self._fn_args = plan, fn_args
        self._seconds: dict[str, float] = {}
        oracle = _oracle(plan.tune)
        oracle.verbose = 0
        super().__init__(oracle, directory=fn_args.working_dir, project_name=_PROJECT)

    def run_trial(self, trial: Any, *_: Any, **__: Any) -> float:
        """Trains with a trial's values; returns the mean loss on the eval split.

        Raises:
          FailedTrialError: these values do not train: the loss is not finite, or they take more memory than there is.
          FatalError: anything else, which would befall every trial.
        """
        values = trial.hyperparameters.values
        logging.info("trial %s begins: %s", trial.trial_id, shown(values))
        began = time.monotonic()
        try:
            loss = _loss(self._plan.trial.with_values(values), self._fn_args)
        except NotFiniteError as error:
            raise keras_tuner.errors.FailedTrialError(error.headline) from error
        except tf.errors.ResourceExhaustedError as error:
            if find(error):  # A full disk is one too, and would fill up again.
                raise keras_tuner.errors.FatalError(f"trial {trial.trial_id}: {error}") from error
            raise keras_tuner.errors.FailedTrialError("the memory does not suffice") from error
        except Exception as error:
            raise keras_tuner.errors.FatalError(f"trial {trial.trial_id}: {error}") from error
        finally:
            self._seconds[trial.trial_id] = time.monotonic() - began
        if not math.isfinite(loss):
            raise keras_tuner.errors.FailedTrialError(f"expected a finite loss on the eval split, received {loss}")
        return loss

    def on_trial_end(self, trial: Any) -> None:
        """Says how it went."""
        super().on_trial_end(trial)
        ended = self.oracle.get_trial(trial.trial_id)
        if ended.score is None:
            logging.warning("trial %s has failed: %s", trial.trial_id, _why(ended))
        else:
            best = self.oracle.get_best_trials(1)[0].score
            logging.info(
                "trial %s: loss %.5f on the eval split, the best so far is %.5f", trial.trial_id, ended.score, best
            )

    def on_search_end(self) -> None:
        """Says what was best.

        Raises:
          InputError: no trial has succeeded.
        """
        trials = list(self.oracle.trials.values())
        if all(trial.score is None for trial in trials):
            raise InputError(
                f"tune: all {len(trials)} trials have failed; the last: {_why(trials[-1])}",
                "narrow what is tried: a lower tune.learning_rate, smaller networks",
            )
        logging.info("best values after %d trials: %s", len(trials), shown(self.get_best_hyperparameters()[0].values))

    def get_state(self) -> dict[str, Any]:
        """What a resumed search has to know beside the oracle's state."""
        return {"seconds": self._seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes up what `get_state` gave."""
        self._seconds = state["seconds"]

    def told(self) -> list[dict[str, Any]]:
        """Every trial, the best first: its values, its loss on the eval split or why it failed, and its seconds."""
        trials = sorted(self.oracle.trials.values(), key=lambda trial: (trial.score is None, trial.score))
        return [
            {
                "trial": trial.trial_id,
                "state": "failed" if trial.score is None else "completed",
                "values": plain(trial.hyperparameters.values),
                _LOSS: trial.score,
                "seconds": round(self._seconds.get(trial.trial_id, 0.0), 3),
                **({"why": _why(trial)} if trial.score is None else {}),
            }
            for trial in trials
        ]


def _oracle(tune: TuneConfig) -> Any:
    kinds = {
        "random": keras_tuner.oracles.RandomSearchOracle,
        "bayesian": keras_tuner.oracles.BayesianOptimizationOracle,
    }
    return kinds[tune.search](
        objective=keras_tuner.Objective(_LOSS, "min"),
        max_trials=tune.trials,
        hyperparameters=space(tune),
        allow_new_entries=False,
        seed=tune.seed,
        # A loss that is not finite is an answer like any other, however many come in a row.
        max_consecutive_failed_trials=tune.trials + 1,
    )


def _loss(plan: TrainingPlan, fn_args: Any) -> float:
    """Trains by a plan in a folder of its own; returns the mean loss on the eval split."""
    # The graphs of the trial before are of no more use.
    tf_keras.backend.clear_session()
    losses = []
    with tempfile.TemporaryDirectory() as scratch:
        given = copy.copy(fn_args)
        given.model_run_dir = scratch
        given.custom_config = {**fn_args.custom_config, "checkpoints": f"{scratch}/checkpoints"}
        training = Training(plan, given)
        training.fit(
            tf.distribute.get_strategy(), None, lambda _, network: losses.append(training.measure(network)[_LOSS])
        )
    return losses[-1]


def _why(trial: Any) -> str:
    """The last line of the traceback that KerasTuner keeps of a failed trial, without the error's type."""
    line = next(iter(reversed((trial.message or "").strip().splitlines())), "")
    return line.partition(": ")[2] or line
