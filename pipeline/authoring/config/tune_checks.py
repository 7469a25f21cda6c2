"""Checks of the section `tune` against the model and the training whose values it replaces."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from components.base.config_section import Problem
from components.models.config import CONSTRAINTS, ModelConfig, has_effect
from components.trainer.config import TrainingConfig
from components.tuner.config import TuneConfig
from pipeline.authoring.config.document import convert_validation_error
from pipeline.authoring.config.model_checks import check_model
from pipeline.authoring.config.root import Config


def check_tune(config: Config) -> Iterator[Problem]:
    """Yield values that are invalid for their field, fields without an effect, and kinds that do not fit the config."""
    tune = config.tune
    if tune is None:
        return
    if config.model.run_fn or config.model.train:
        field = "run_fn" if config.model.run_fn else "train"
        yield Problem(("tune",), f"a model.{field} of your own does its own tuning; remove one of both")
        return
    for name in tune.values():
        if config.model.build and name in ModelConfig.model_fields:
            yield Problem(("tune", name), "model.build makes the network itself, so this would have no effect")
            return
    problems = list(_values(config, tune))
    yield from problems
    if problems:
        return
    yield from _kinds(config, tune)
    yield from _halving(config, tune)


def _values(config: Config, tune: TuneConfig) -> Iterator[Problem]:
    """Yield candidate values that are invalid for their field, and fields that do not have an effect."""
    for key, name, value in tune.candidates():
        section = TrainingConfig if name in TrainingConfig.model_fields else ModelConfig
        kinds = tune.kinds(name, config.model.kind)
        if not kinds:
            message = f"{name} has no effect in {', '.join(tune.kinds('kind', config.model.kind))}; remove it"
            yield Problem(("tune", name), message)
            return
        try:
            if section is TrainingConfig:
                TrainingConfig.model_validate({**config.training.model_dump(), name: value})
            else:
                config.model.with_values({"kind": kinds[0], name: value})
        except ValidationError as error:
            for problem in convert_validation_error(error, section):
                yield Problem(("tune", *key), problem.message)


def _kinds(config: Config, tune: TuneConfig) -> Iterator[Problem]:
    """Yield kinds that do not fit the data, the features or the training, and kinds that would drop a constraint.

    Other options of one kind, such as its number of layers, do not mean anything in other kinds. Their trials use the
    defaults of their own options.
    """
    known = {(problem.key, problem.message) for problem in check_model(config)}
    for index, kind in enumerate(tune.kind.candidates if tune.kind else ()):
        key = ("tune", "kind", "choice", index)
        for name in CONSTRAINTS:
            if getattr(config.model, name) and not has_effect(name, kind):
                message = f"expected kinds that keep model.{name}, received {kind}, which would ignore it"
                yield Problem(key, f"{message}; remove one of them")
        model = config.model.with_values({"kind": kind})
        for problem in check_model(config.model_copy(update={"model": model})):
            if (problem.key, problem.message) not in known:
                yield Problem(key, f"{'.'.join(map(str, problem.key))} with {kind}: {problem.message}")


def _halving(config: Config, tune: TuneConfig) -> Iterator[Problem]:
    """Yield kinds that are not trained step by step, and rungs that do not stop any trial."""
    if tune.halving is None:
        return
    for kind in tune.kinds("kind", config.model.kind):
        model = config.model.with_values({"kind": kind})
        if model.has_forest or not model.has_network:
            message = f"expected kinds that are trained in steps, received {kind}, which cannot pause after a rung"
            yield Problem(("tune", "halving"), f"{message}; remove one of them")
            return
    steps = tune.steps if isinstance(tune.steps, int) else config.training.steps
    factor, rungs = tune.halving.factor, tune.halving.list_rungs(steps)
    if len(rungs) == 1:
        message = f"expected a first rung of at most {steps // factor} of the {steps} steps of a trial"
        received = tune.halving.min_steps or steps
        yield Problem(("tune", "halving"), f"{message}, received {received}; lower min_steps, or raise tune.steps")
    if tune.trials < factor:
        message = f"expected at least factor, {factor}, trials, of which one continues, received {tune.trials}"
        yield Problem(("tune", "trials"), f"{message}; raise it, or remove tune.halving")
