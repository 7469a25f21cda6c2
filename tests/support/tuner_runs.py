"""Searches of a Tuner, run as its node does it; what imports TFX is imported late, as a test calls these in a child."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer_runs import Prepared, artifact, inputs_of, plan_of

from components import errors


def tune(prepared: Prepared, folder: Path, training: dict[str, Any], tune: dict[str, Any], stop_at: int = 0) -> Any:
    """Runs the Tuner's executor in this process.

    Args:
      prepared: its input.
      folder: for all it makes; empty, or that of an earlier attempt.
      training: fields of the training section.
      tune: the `tune` section.
      stop_at: the trial that ends as if this process had received SIGTERM; none for 0.

    Returns:
      The contents of trials.json and of TFX's tuner_results.json, and the best values.
    """
    from tfx.dsl.components.base.base_executor import BaseExecutor
    from tfx.types.standard_artifacts import HyperParameters, TunerResults

    from components.tuner import search
    from components.tuner.config import TuneConfig
    from components.tuner.executor import Executor
    from components.tuner.plan import tuning_plan

    outputs = {
        "best_hyperparameters": artifact(HyperParameters, str(folder / "best")),
        "tuner_results": artifact(TunerResults, str(folder / "results")),
    }
    for name in ("best", "results", "work"):
        (folder / name).mkdir(exist_ok=True, parents=True)
    plan = tuning_plan(plan_of(prepared, training), TuneConfig.model_validate(tune))
    properties = {
        "tuner_fn": search.PATH,
        "train_args": "{}",
        "eval_args": "{}",
        "custom_config": json.dumps({"plan": plan.model_dump_json(), "code": "of the test"}),
    }
    if stop_at:
        _stop_at(stop_at)
    context = BaseExecutor.Context(stateful_working_dir=str(folder / "work"))
    Executor(context).Do(inputs_of(prepared), outputs, properties)
    [best] = (folder / "best").iterdir()
    return (
        json.loads((folder / "results" / "trials.json").read_text()),
        json.loads((folder / "results" / "tuner_results.json").read_text()),
        json.loads(best.read_text())["values"],
    )


def _stop_at(number: int) -> None:
    """Ends this process's search during a trial, as SIGTERM does."""
    from components.trainer.run_fn import Training

    original, begun = Training.fit, []

    def fit(self: Any, *arguments: Any) -> None:
        begun.append(self)
        if len(begun) == number:
            raise SystemExit(143)
        original(self, *arguments)

    Training.fit = fit


def without_a_disk(prepared: Prepared, folder: Path, training: dict[str, Any], section: dict[str, Any]) -> Any:
    """Runs a search whose trials fail with a full disk; returns the error, and how many trials had begun."""
    from components.trainer.run_fn import Training

    begun = []

    def fit(self: Any, *arguments: Any) -> None:
        begun.append(self)
        raise OSError("No space left on device")

    Training.fit = fit
    try:
        tune(prepared, folder, training, section)
    except Exception as error:
        return errors.find(error), len(begun)
