"""The tuner_fn that TFX's Tuner calls: KerasTuner chooses the values, and each trial is a training like the Trainer's.

KerasTuner imports Keras 3, whose models are not used: an oracle proposes hyperparameters, and the processes of the
trials build and train the models with tf_keras.
"""

from __future__ import annotations

import json
import logging
import multiprocessing.connection
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras_tuner
import tensorflow_transform as tft
from keras_tuner.engine.trial import Trial, TrialStatus
from tfx.components.tuner.component import TunerFnResult
from tfx.dsl.io import fileio

from components.base import progress
from components.base.errors import InputError
from components.base.files import is_remote, write_atomically
from components.models.config import Kind
from components.trainer import input_pipeline
from components.trainer.plan import TrainingPlan
from components.trainer.preemption import PreemptionFlag
from components.tuner.config import TuneConfig, Values
from components.tuner.halving import Halving
from components.tuner.plan import TuningPlan
from components.tuner.result import COMPLETED, FAILED, STOPPED
from components.tuner.shares import JobSlots, Share, Shares
from components.tuner.trial_process import Task, TrialProcess, run_local_task
from components.tuner.trial_values import one_line, plain

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

PATH = f"{__name__}.tuner_fn"
"""Import path for TFX's Tuner."""

_LOSS = "loss"
PIPELINE = "pipeline"
"""Key of the pipeline's name in `custom_config`."""
_STATE = "search.json"
_ATTEMPTS = 2
"""How often a process of a trial is started if it is killed."""
_JOB_SECONDS = 30.0
"""Maximum time to delete the jobs of trials when the search ends early."""
_LEAST_MINUTES = 1e-3
"""Rest of `training.max_minutes` for a trial that has used it up; the training then ends after its next steps."""
_POLL_SECONDS = 0.25
"""Maximum wait for an exit. A signal does not end the wait, so SIGTERM is noticed after this time at the latest."""


def tuner_fn(fn_args: FnArgs) -> TunerFnResult:
    """Return the search of a plan; an interrupted one continues in its folder.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TuningPlan as JSON, `working_dir` the search's folder.
    """
    plan = TuningPlan.model_validate_json(fn_args.custom_config["plan"])
    return TunerFnResult(tuner=Search(plan, fn_args), fit_kwargs={})


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
    """A running process of a trial.

    Attributes:
      trial: ID of the trial.
      rung: Number of the rung that it trains for.
      slot: Number of the part of the machine.
      process: The process.
    """

    trial: str
    rung: int
    slot: int
    process: TrialProcess


class Search(keras_tuner.engine.base_tuner.BaseTuner):  # type: ignore[misc]
    """Runs trials in separate processes, and compares them by the loss on the validation part.

    Random values depend only on the seed and the number of the trial, so parallel trials give the same values as
    sequential trials. Values of a bayesian search depend on the trials that have ended before, and promotions of
    `tune.halving` on the order in which trials reach a rung.

    The whole state is one file, which is replaced after every event, so a search that was killed at any time continues.
    KerasTuner also writes files, into a temporary folder, because it does not replace them together or atomically.

    Args:
      plan: The training of a trial, and the values to try.
      fn_args: TFX's FnArgs.
    """

    def __init__(self, plan: TuningPlan, fn_args: FnArgs) -> None:
        self._plan, self._fn_args = plan, fn_args
        self._folder = fn_args.working_dir
        # Without halving, the only rung has the trial's own number of steps.
        self._rungs: list[int | None] = [*plan.rungs] or [None]
        self._halving = Halving(len(self._rungs), plan.tune.halving.factor if plan.tune.halving else 1)
        self._curves: dict[str, list[tuple[int, float]]] = {}
        self._seconds: dict[str, float] = {}
        self._running: list[_Attempt] = []
        self._kills: dict[tuple[str, int], int] = {}
        self._has_more = True
        oracle = _create_oracle(plan)
        oracle.verbose = 0
        self._scratch = tempfile.TemporaryDirectory()
        super().__init__(oracle, directory=self._scratch.name)
        if fileio.exists(f"{self._folder}/{_STATE}"):
            self.reload()
        # Trials whose rung has not ended: the previous process of this search was killed.
        ongoing = [trial.trial_id for trial in oracle.ongoing_trials.values()]
        rungs = {trial: self._halving.find_rung(trial) for trial in ongoing}
        self._interrupted = [
            (trial, rung) for trial, rung in rungs.items() if not self._halving.has_reported(trial, rung)
        ]

    def search(self, *_: Any, **__: Any) -> None:
        """Run the trials that remain, and log the best values.

        Raises:
          InputError: If no trial has succeeded.
          PipelineError: If a trial failed in a way that would fail every trial.
          SystemExit: If this process received SIGTERM.
        """
        with PreemptionFlag() as stop:
            try:
                self._run(self._divide_machine(), stop)
            finally:
                self._end_processes()
        self._check_and_log()
        for trial in self.oracle.trials:
            self._remove_checkpoints(trial)

    def save(self) -> None:
        """Write the state of the search: the values of all trials, their losses, and what continues."""
        state = {
            "oracle": self.oracle.get_state(),
            "trials": [trial.get_state() for trial in self.oracle.trials.values()],
            "halving": self._halving.get_state(),
            "curves": self._curves,
            "seconds": self._seconds,
        }
        _replace(f"{self._folder}/{_STATE}", json.dumps(state))

    def reload(self) -> None:
        """Restore what `save` has written."""
        with fileio.open(f"{self._folder}/{_STATE}") as file:
            state = json.loads(file.read())
        self.oracle.trials = {trial["trial_id"]: Trial.from_state(trial) for trial in state["trials"]}
        self.oracle.set_state(state["oracle"])
        self._halving.set_state(state["halving"])
        self._curves, self._seconds = state["curves"], state["seconds"]

    def get_best_hyperparameters(self, num_trials: int = 1) -> list[keras_tuner.HyperParameters]:
        """Return the values of the best trials. With halving, trials with more steps precede all other trials."""
        return [self.oracle.trials[trial].hyperparameters for trial in self._halving.rank()[:num_trials]]

    def records(self) -> list[dict[str, Any]]:
        """Return the fields of `result.Trial` of all trials, the best first."""
        ranked = self._halving.rank()
        return [self._describe(trial) for trial in (*ranked, *(id_ for id_ in self.oracle.trials if id_ not in ranked))]

    def _describe(self, trial: str) -> dict[str, Any]:
        losses, curve = self._halving.list_losses(trial), self._curves.get(trial, [])
        failed = losses[-1] is None
        state = FAILED if failed else COMPLETED if len(losses) == len(self._rungs) else STOPPED
        rungs = [(step, loss) for step, loss in zip(self._rungs, losses, strict=False) if step is not None]
        return {
            "trial": trial,
            "state": state,
            "values": plain(self.oracle.trials[trial].hyperparameters.values),
            _LOSS: losses[-1],
            "steps": curve[-1][0] if curve else None,
            "seconds": round(self._seconds.get(trial, 0.0), 3),
            "curve": curve,
            "rungs": rungs,
            **({"why": self.oracle.trials[trial].message} if failed else {}),
        }

    def _estimate_example_bytes(self) -> int:
        spec = tft.TFTransformOutput(self._fn_args.transform_graph_path).transformed_feature_spec()
        return input_pipeline.size(input_pipeline.find(self._fn_args.train_files), spec)

    def _divide_machine(self) -> Shares:
        tune = self._plan.tune
        return JobSlots(tune) if self._plan.where else Shares(tune, self._estimate_example_bytes())

    def _end_processes(self) -> None:
        """End the running processes. A process that follows a job deletes the job first."""
        grace_seconds = _JOB_SECONDS if self._plan.where else 0.0
        if grace_seconds:
            for attempt in self._running:
                attempt.process.send_signal(signal.SIGTERM)
        for attempt in self._running:
            attempt.process.end(grace_seconds)

    def _run(self, shares: Shares, stop: PreemptionFlag) -> None:
        logging.info("up to %d trials, %d at a time, each %s", self._plan.tune.trials, shares.count, shares.describe())
        if self._plan.rungs:
            logging.info("a trial is compared with others after %s steps", ", ".join(map(str, self._plan.rungs)))
        while True:
            while len(self._running) < shares.count and (chosen := self._choose_next()):
                slot = min(set(range(shares.count)) - {attempt.slot for attempt in self._running})
                self._start(*chosen, shares.share(slot))
            if not self._running:
                return
            ended = multiprocessing.connection.wait([attempt.process.pidfd for attempt in self._running], _POLL_SECONDS)
            # Check this first, because a signal to the process group ends the trials as well.
            if stop.is_set():
                raise SystemExit(128 + signal.SIGTERM)
            for attempt in [attempt for attempt in self._running if attempt.process.pidfd in ended]:
                self._running.remove(attempt)
                self._end(attempt, shares)

    def _choose_next(self) -> tuple[str, int] | None:
        """Return a trial and the rung to train it for; None if there is nothing to do until a running trial ends."""
        if self._interrupted:
            return self._interrupted.pop(0)
        promotion = self._halving.promote()
        if promotion is None and self._has_more:
            # KerasTuner identifies running trials by the name of their worker.
            trial = self.oracle.create_trial(str(len(self.oracle.trials)))
            self._has_more = trial.status == TrialStatus.RUNNING
            if self._has_more:
                self.save()
                return trial.trial_id, 0
        if promotion is None and not self._running:
            promotion = self._halving.promote(is_final=True)
        if promotion is not None:
            self.save()
        return promotion

    def _start(self, trial: str, rung: int, share: Share) -> None:
        values, pause_at = self.oracle.trials[trial].hyperparameters.values, self._rungs[rung]
        if rung:
            logging.info("trial %s continues up to step %d", trial, pause_at)
        else:
            logging.info("trial %s begins: %s", trial, one_line(values))
        plan = self._limit_time(self._plan.trial.with_values(values), trial)
        task = Task(trial, plan, self._find_folder(trial), pause_at)
        self._running.append(_Attempt(trial, rung, share.number, self._create_process(task, share)))

    def _create_process(self, task: Task, share: Share) -> TrialProcess:
        if self._plan.where is None:
            process = TrialProcess(run_local_task, task, self._fn_args, share)
            logging.info("trial %s runs in process %d on %d cores", task.trial, process.pid, len(share.cores))
            return process
        # The clients of the services are imported only if jobs are used.
        from components.tuner.trial_job import follow_job

        pipeline = self._fn_args.custom_config.get(PIPELINE, "model")
        return TrialProcess(follow_job, task, self._fn_args, self._plan.where, pipeline, f"{self._folder}/logs")

    def _limit_time(self, plan: TrainingPlan, trial: str) -> TrainingPlan:
        """Return the plan with the rest of `training.max_minutes`, which applies to all rungs of a trial together."""
        limit = plan.training.max_minutes
        if limit is None:
            return plan
        minutes = max(limit - self._seconds.get(trial, 0.0) / 60, _LEAST_MINUTES)
        return plan.model_copy(update={"training": plan.training.model_copy(update={"max_minutes": minutes})})

    def _end(self, attempt: _Attempt, shares: Shares) -> None:
        """Record a rung whose process has exited, or start the process again later.

        Raises:
          PipelineError: If a trial failed in a way that would fail every trial.
        """
        id_, rung, process = attempt.trial, attempt.rung, attempt.process
        result = process.result()
        if result is None:
            self._kills[id_, rung] = self._kills.get((id_, rung), 0) + 1
            shares.reduce()
            if self._kills[id_, rung] < _ATTEMPTS:
                logging.warning("trial %s: %s; it is started again", id_, process.describe_exit())
                self._interrupted.append((id_, rung))
                return
        if result is not None and result.error is not None:
            raise result.error
        self._seconds[id_] = self._seconds.get(id_, 0.0) + process.seconds
        loss = result.loss if result else None
        self._halving.report(id_, rung, loss)
        trial = self.oracle.trials[id_]
        if result is None or loss is None:
            trial.message = result.why if result else f"{process.describe_exit()}, {_ATTEMPTS} times"
            trial.status = TrialStatus.FAILED
            self.oracle.end_trial(trial)
        else:
            self._curves[id_] = result.curve
            shares.measure(result.peak_bytes)
            if rung == self._halving.last:
                self.oracle.update_trial(id_, {_LOSS: loss})
                trial.status = TrialStatus.COMPLETED
                self.oracle.end_trial(trial)
        self.save()
        self._log(id_, rung, loss)
        if loss is None or rung == self._halving.last:
            self._remove_checkpoints(id_)

    def _log(self, trial: str, rung: int, loss: float | None) -> None:
        count = f"{len(self.oracle.trials)} of {self._plan.tune.trials} trials have begun"
        if loss is None:
            logging.warning("trial %s has failed: %s", trial, self.oracle.trials[trial].message)
            progress.report(f"{count}, trial {trial} has failed")
            return
        [best, *_] = self._halving.rank()
        best_loss = self._halving.list_losses(best)[-1]
        steps, best_steps = (
            f" after {self._rungs[number]} steps" if self._plan.rungs else ""
            for number in (rung, len(self._halving.list_losses(best)) - 1)
        )
        logging.info(
            "trial %s%s: loss %.5f on the validation part, the best so far is %.5f", trial, steps, loss, best_loss
        )
        progress.report(
            f"{count}, trial {trial}{steps}: loss {loss:.5f}, best {best_loss:.5f} (trial {best}{best_steps})"
        )

    def _check_and_log(self) -> None:
        trials = list(self.oracle.trials.values())
        if not self._halving.rank():
            raise InputError(
                f"tune: all {len(trials)} trials have failed; the last: {trials[-1].message}",
                "narrow what is tried: a lower tune.learning_rate, smaller networks",
            )
        logging.info(
            "best values after %d trials: %s", len(trials), one_line(self.get_best_hyperparameters()[0].values)
        )

    def _find_folder(self, trial: str) -> str:
        return f"{self._folder}/trials/{trial}"

    def _remove_checkpoints(self, trial: str) -> None:
        if fileio.exists(self._find_folder(trial)):
            fileio.rmtree(self._find_folder(trial))


def _replace(path: str, text: str) -> None:
    """Write a file so that it has either the old or the new content, whenever this process is killed."""
    if is_remote(path):
        # An object store replaces an object at once when it is complete.
        with fileio.open(path, "w") as file:
            file.write(text)
    else:
        write_atomically(Path(path), text)


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
