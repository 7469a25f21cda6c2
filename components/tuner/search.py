"""The tuner_fn that TFX's Tuner calls: KerasTuner chooses the values, and each trial is a training like the Trainer's.

KerasTuner imports Keras 3, but no model of it is used here: an oracle proposes hyperparameters, and the models are
built and trained with tf_keras.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import tempfile
import time
from typing import TYPE_CHECKING, Any

import keras_tuner
import tensorflow as tf
import tf_keras
from tfx.components.tuner.component import TunerFnResult

from components.errors import InputError, find
from components.trainer import strategy
from components.trainer.plan import TrainingPlan
from components.trainer.run_fn import Training
from components.trainer.strategy import Distribution
from components.trainer.training_loop import NotFiniteError
from components.tuner.config import TuneConfig
from components.tuner.plan import TuningPlan
from components.tuner.trial_values import one_line, plain

if TYPE_CHECKING:
    from keras_tuner.engine.trial import Trial
    from tfx.components.trainer.fn_args_utils import FnArgs

PATH = f"{__name__}.tuner_fn"
"""Import path for TFX's Tuner."""

TRIALS = "trials.json"
"""The file in the `tuner_results` artifact with every trial."""

_LOSS = "loss"
_PROJECT = "search"


def tuner_fn(fn_args: FnArgs) -> TunerFnResult:
    """The search of a plan; an interrupted one continues in its folder.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TuningPlan as JSON, `working_dir` the search's folder.
    """
    plan = TuningPlan.model_validate_json(fn_args.custom_config["plan"])
    strategy.prepare(None, plan.trial.training.precision)
    logging.info(
        "up to %d trials of %d steps, one after the other, each in this process alone whatever training.strategy is",
        plan.tune.trials,
        plan.trial.training.steps,
    )
    return TunerFnResult(tuner=Search(plan, fn_args), fit_kwargs={})


def search_space(tune: TuneConfig) -> keras_tuner.HyperParameters:
    """The values to try, in the form of KerasTuner."""
    space = keras_tuner.HyperParameters()
    for name, values in tune.values().items():
        candidates = values.candidates
        if values.sampling == "choice":
            # KerasTuner has no values that are lists, so JSON stands for one.
            space.Choice(name, [json.dumps(each) if isinstance(each, tuple) else each for each in candidates])
        elif values.sampling == "int":
            space.Int(name, *candidates)
        else:
            space.Float(name, *candidates, sampling=values.sampling)
    return space


class Search(keras_tuner.engine.base_tuner.BaseTuner):  # type: ignore[misc]
    """Runs trials one after the other in this process, and compares them by the loss on the validation part.

    Args:
      plan: the training of a trial, and the values to try.
      fn_args: TFX's FnArgs.
    """

    def __init__(self, plan: TuningPlan, fn_args: FnArgs) -> None:
        self._plan, self._fn_args = plan, fn_args
        self._seconds: dict[str, float] = {}
        oracle = _oracle(plan.tune)
        oracle.verbose = 0
        super().__init__(oracle, directory=fn_args.working_dir, project_name=_PROJECT)

    def run_trial(self, trial: Trial, *_: Any, **__: Any) -> float:
        """Trains with a trial's values; returns the mean loss on the validation part.

        Raises:
          FailedTrialError: these values do not train: the loss is not finite, or the memory does not suffice.
          FatalError: any other failure, which every trial would have.
        """
        values = trial.hyperparameters.values
        logging.info("trial %s begins: %s", trial.trial_id, one_line(values))
        started = time.monotonic()
        try:
            loss = _loss(self._plan.trial.with_values(values), self._fn_args)
        except NotFiniteError as error:
            raise keras_tuner.errors.FailedTrialError(error.headline) from error
        except tf.errors.ResourceExhaustedError as error:
            if find(error):  # A full disk raises the same type, and would fail every trial.
                raise keras_tuner.errors.FatalError(f"trial {trial.trial_id}: {error}") from error
            raise keras_tuner.errors.FailedTrialError("out of memory") from error
        except Exception as error:
            raise keras_tuner.errors.FatalError(f"trial {trial.trial_id}: {error}") from error
        finally:
            self._seconds[trial.trial_id] = time.monotonic() - started
        if not math.isfinite(loss):
            raise keras_tuner.errors.FailedTrialError(f"expected a finite loss on the validation part, received {loss}")
        return loss

    def on_trial_end(self, trial: Trial) -> None:
        """Logs the result."""
        super().on_trial_end(trial)
        ended = self.oracle.get_trial(trial.trial_id)
        if ended.score is None:
            logging.warning("trial %s has failed: %s", trial.trial_id, _failure(ended))
        else:
            best = self.oracle.get_best_trials(1)[0].score
            logging.info(
                "trial %s: loss %.5f on the validation part, the best so far is %.5f", trial.trial_id, ended.score, best
            )

    def on_search_end(self) -> None:
        """Logs the best values.

        Raises:
          InputError: no trial has succeeded.
        """
        trials = list(self.oracle.trials.values())
        if all(trial.score is None for trial in trials):
            raise InputError(
                f"tune: all {len(trials)} trials have failed; the last: {_failure(trials[-1])}",
                "narrow what is tried: a lower tune.learning_rate, smaller networks",
            )
        logging.info(
            "best values after %d trials: %s", len(trials), one_line(self.get_best_hyperparameters()[0].values)
        )

    def get_state(self) -> dict[str, Any]:
        """The state of the search, without the oracle's; KerasTuner saves it."""
        return {"seconds": self._seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._seconds = state["seconds"]

    def records(self) -> list[dict[str, Any]]:
        """Every trial, the best first: values, loss on the validation part or reason of its failure, seconds."""
        trials = sorted(self.oracle.trials.values(), key=lambda trial: (trial.score is None, trial.score))
        return [
            {
                "trial": trial.trial_id,
                "state": "failed" if trial.score is None else "completed",
                "values": plain(trial.hyperparameters.values),
                _LOSS: trial.score,
                "seconds": round(self._seconds.get(trial.trial_id, 0.0), 3),
                **({"why": _failure(trial)} if trial.score is None else {}),
            }
            for trial in trials
        ]


def _oracle(tune: TuneConfig) -> keras_tuner.Oracle:
    kinds = {
        "random": keras_tuner.oracles.RandomSearchOracle,
        "bayesian": keras_tuner.oracles.BayesianOptimizationOracle,
    }
    return kinds[tune.search](
        objective=keras_tuner.Objective(_LOSS, "min"),
        max_trials=tune.trials,
        hyperparameters=search_space(tune),
        allow_new_entries=False,
        seed=tune.seed,
        # A loss that is not finite is a result; any number of them may follow each other.
        max_consecutive_failed_trials=tune.trials + 1,
    )


def _loss(plan: TrainingPlan, fn_args: FnArgs) -> float:
    """Trains a plan's model in a temporary folder; returns the mean loss on the validation part."""
    # Frees the graphs of the previous trial.
    tf_keras.backend.clear_session()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = copy.copy(fn_args)
        arguments.model_run_dir = scratch
        arguments.custom_config = {**fn_args.custom_config, "checkpoints": f"{scratch}/checkpoints"}
        training = Training(plan, arguments, validate=True)
        training.fit(Distribution(tf.distribute.get_strategy()))
        return training.validation_loss


def _failure(trial: Trial) -> str:
    """The last line of the traceback that KerasTuner records for a failed trial, without the error's type."""
    line = next(iter(reversed((trial.message or "").strip().splitlines())), "")
    return line.partition(": ")[2] or line
