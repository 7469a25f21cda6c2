"""The tuner_fn that TFX's Tuner calls: KerasTuner chooses the values, and each trial is a training like the Trainer's.

KerasTuner imports Keras 3, whose models are not used: an oracle proposes hyperparameters, and the processes of the
trials build and train the models with tf_keras.
"""

from __future__ import annotations

import json
import logging
import multiprocessing.connection
import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import keras_tuner
import tensorflow_transform as tft
from keras_tuner.engine.trial import TrialStatus
from tfx.components.tuner.component import TunerFnResult

from components.base.errors import InputError
from components.base.memory import memory
from components.models.config import Kind
from components.trainer import input_pipeline
from components.trainer.cluster.supervisor import visible_gpus
from components.trainer.preemption import PreemptionFlag
from components.tuner.config import TuneConfig, Values
from components.tuner.plan import TuningPlan
from components.tuner.trial_process import Share, TrialProcess
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
_ATTEMPTS = 2
"""How often a trial is started if its process is killed."""
_TRIAL_BYTES = 1 << 30
"""Memory of a trial without its examples, mostly the libraries that TensorFlow loads."""
_COPIES = 3
"""Number of copies of the examples in a trial: a forest holds them as columns, as a matrix, and in YDF."""
_POLL_SECONDS = 0.25
"""Maximum wait for an exit. A signal does not end the wait, so SIGTERM is noticed after this time at the latest."""


def tuner_fn(fn_args: FnArgs) -> TunerFnResult:
    """Return the search of a plan; an interrupted one continues in its folder.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TuningPlan as JSON, `working_dir` the search's folder.
    """
    plan = TuningPlan.model_validate_json(fn_args.custom_config["plan"])
    return TunerFnResult(tuner=Search(plan, fn_args), fit_kwargs={})


def shares(tune: TuneConfig, example_bytes: int) -> list[Share]:
    """Return the parts of this machine for the trials that run at a time.

    Args:
      tune: The number of parallel trials; by default the number of cores or GPUs, reduced to what the memory allows.
      example_bytes: Memory of the examples of the training split, in bytes.
    """
    cores, gpus = sorted(os.sched_getaffinity(0)), visible_gpus()
    fit = memory()[1] // (_TRIAL_BYTES + _COPIES * example_bytes)
    count = max(1, min(tune.trials, tune.parallel or min(len(gpus) or len(cores), fit)))
    return [
        Share(
            number,
            frozenset(cores[number::count] or [cores[number % len(cores)]]),
            gpus[number % len(gpus)] if gpus and count > 1 else None,
        )
        for number in range(count)
    ]


def search_space(tune: TuneConfig, kind: Kind) -> keras_tuner.HyperParameters:
    """Return the values to try for KerasTuner; a trial has values for the fields that affect its kind of model.

    Args:
      tune: The values.
      kind: Kind of the config, if kinds are not tuned.
    """
    space = keras_tuner.HyperParameters()
    for name, values in tune.values().items():
        if tune.kind is None or name == "kind":
            _add(space, name, values)
        else:
            with space.conditional_scope("kind", tune.kinds(name, kind)):
                _add(space, name, values)
    return space


def _add(space: keras_tuner.HyperParameters, name: str, values: Values) -> None:
    candidates = values.candidates
    if values.sampling == "choice":
        # KerasTuner does not support lists, so encode them as JSON.
        space.Choice(
            name, [json.dumps(candidate) if isinstance(candidate, tuple) else candidate for candidate in candidates]
        )
    elif values.sampling == "int":
        space.Int(name, *candidates)
    else:
        space.Float(name, *candidates, sampling=values.sampling)


class _Attempt(NamedTuple):
    """A running trial, its share of the machine, and how often it was started."""

    trial: Trial
    share: Share
    number: int
    process: TrialProcess


class Search(keras_tuner.engine.base_tuner.BaseTuner):  # type: ignore[misc]
    """Runs trials in separate processes, and compares them by the loss on the validation part.

    Random values depend only on the seed and the number of the trial, so parallel trials give the same values as
    sequential trials. Values of a bayesian search depend on the trials that have ended before.

    Args:
      plan: The training of a trial, and the values to try.
      fn_args: TFX's FnArgs.
    """

    def __init__(self, plan: TuningPlan, fn_args: FnArgs) -> None:
        self._plan, self._fn_args = plan, fn_args
        self._seconds: dict[str, float] = {}
        self._running: list[_Attempt] = []
        oracle = _create_oracle(plan)
        oracle.verbose = 0
        super().__init__(oracle, directory=fn_args.working_dir, project_name=_PROJECT)

    def search(self, *_: Any, **__: Any) -> None:
        """Run the trials that remain, and log the best values.

        Raises:
          InputError: If no trial has succeeded.
          PipelineError: If a trial failed in a way that would fail every trial.
          SystemExit: If this process received SIGTERM.
        """
        with PreemptionFlag() as stop:
            try:
                self._run(shares(self._plan.tune, self._estimate_example_bytes()), stop)
            finally:
                for attempt in self._running:
                    attempt.process.end()
        self._check_and_log()

    def get_state(self) -> dict[str, Any]:
        """Return the state of the search, without the oracle's; KerasTuner saves it."""
        return {"seconds": self._seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_state` returned."""
        self._seconds = state["seconds"]

    def records(self) -> list[dict[str, Any]]:
        """Return a record of every trial, the best first: values, validation loss or reason of the failure, seconds."""
        trials = sorted(self.oracle.trials.values(), key=lambda trial: (trial.score is None, trial.score))
        return [
            {
                "trial": trial.trial_id,
                "state": "failed" if trial.score is None else "completed",
                "values": plain(trial.hyperparameters.values),
                _LOSS: trial.score,
                "seconds": round(self._seconds.get(trial.trial_id, 0.0), 3),
                **({"why": trial.message} if trial.score is None else {}),
            }
            for trial in trials
        ]

    def _estimate_example_bytes(self) -> int:
        spec = tft.TFTransformOutput(self._fn_args.transform_graph_path).transformed_feature_spec()
        return input_pipeline.size(input_pipeline.find(self._fn_args.train_files), spec)

    def _run(self, free: list[Share], stop: PreemptionFlag) -> None:
        logging.info(
            "up to %d trials, %d at a time, each in a process with %d of the cores, whatever training.strategy is",
            self._plan.tune.trials,
            len(free),
            len(free[0].cores),
        )
        more = True
        while True:
            while more and free:
                # KerasTuner identifies running trials by the name of their worker.
                trial = self.oracle.create_trial(str(free[-1].number))
                more = trial.status == TrialStatus.RUNNING
                if more:
                    self._start(trial, free.pop(), 1)
            if not self._running:
                return
            ended = multiprocessing.connection.wait([attempt.process.pidfd for attempt in self._running], _POLL_SECONDS)
            # Check this first, because a signal to the process group ends the trials as well.
            if stop.is_set():
                raise SystemExit(128 + signal.SIGTERM)
            for attempt in [attempt for attempt in self._running if attempt.process.pidfd in ended]:
                self._running.remove(attempt)
                free += self._end(attempt)

    def _start(self, trial: Trial, share: Share, number: int) -> None:
        values = trial.hyperparameters.values
        logging.info("trial %s begins: %s", trial.trial_id, one_line(values))
        process = TrialProcess(trial.trial_id, self._plan.trial.with_values(values), self._fn_args, share)
        self._running.append(_Attempt(trial, share, number, process))

    def _end(self, attempt: _Attempt) -> list[Share]:
        """Record a trial whose process has exited, or start it again; return the shares that are free.

        Raises:
          PipelineError: If a trial failed in a way that would fail every trial.
        """
        trial, process = attempt.trial, attempt.process
        result = process.result()
        if result is None and attempt.number < _ATTEMPTS:
            logging.warning("trial %s: %s; it is started again", trial.trial_id, process.describe_exit())
            self._start(trial, attempt.share, attempt.number + 1)
            return []
        if result is not None and result.error is not None:
            raise result.error
        self._seconds[trial.trial_id] = process.seconds
        if result is None or result.loss is None:
            trial.status = TrialStatus.FAILED
            trial.message = result.why if result else f"{process.describe_exit()}, {_ATTEMPTS} times"
        else:
            self.oracle.update_trial(trial.trial_id, {_LOSS: result.loss})
            trial.status = TrialStatus.COMPLETED
        self.on_trial_end(trial)
        self._log(self.oracle.get_trial(trial.trial_id))
        return [attempt.share]

    def _log(self, trial: Trial) -> None:
        if trial.score is None:
            logging.warning("trial %s has failed: %s", trial.trial_id, trial.message)
        else:
            best = self.oracle.get_best_trials(1)[0].score
            logging.info(
                "trial %s: loss %.5f on the validation part, the best so far is %.5f", trial.trial_id, trial.score, best
            )

    def _check_and_log(self) -> None:
        trials = list(self.oracle.trials.values())
        if all(trial.score is None for trial in trials):
            raise InputError(
                f"tune: all {len(trials)} trials have failed; the last: {trials[-1].message}",
                "narrow what is tried: a lower tune.learning_rate, smaller networks",
            )
        logging.info(
            "best values after %d trials: %s", len(trials), one_line(self.get_best_hyperparameters()[0].values)
        )


def _create_oracle(plan: TuningPlan) -> keras_tuner.Oracle:
    tune = plan.tune
    kinds = {
        "random": keras_tuner.oracles.RandomSearchOracle,
        "bayesian": keras_tuner.oracles.BayesianOptimizationOracle,
    }
    return kinds[tune.search](
        objective=keras_tuner.Objective(_LOSS, "min"),
        max_trials=tune.trials,
        hyperparameters=search_space(tune, plan.trial.model.kind),
        allow_new_entries=False,
        seed=tune.seed,
        # A loss that is not finite is a result, so do not limit their number in a row.
        max_consecutive_failed_trials=tune.trials + 1,
    )
