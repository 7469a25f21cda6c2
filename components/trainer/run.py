"""The run_fn that TFX's Trainer calls: build, fit and export the declared model, or hand over to the user's run_fn."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components import user_code
from components.models import tabular  # noqa: F401 - registers its models
from components.models.inputs import inputs
from components.models.registry import MODELS
from components.trainer import input as train_input
from components.trainer.config import TrainingConfig
from components.trainer.export import export
from components.trainer.plan import TrainingPlan
from components.trainer.task import Target, target

PATH = f"{__name__}.run_fn"
"""Import path for TFX's Trainer."""

_CURVE_STEPS = 50
"""Steps between two points of the training curves."""


def run_fn(fn_args: Any) -> None:
    """Trains and exports.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TrainingPlan as JSON.

    Raises:
      InputError: the label cannot be learned, or the user's run_fn failed.
    """
    plan = TrainingPlan.model_validate_json(fn_args.custom_config["plan"])
    if plan.model.run_fn:
        user_code.call(plan.model.run_fn, fn_args)
        return
    transform = tft.TFTransformOutput(fn_args.transform_output)
    goal = target(plan.features, transform)
    tf_keras.utils.set_random_seed(plan.training.seed)
    network = MODELS[plan.model.kind](
        plan.model, inputs(plan.features, transform.vocabulary_size_by_name), goal.outputs
    )
    network.summary(print_fn=logging.info)
    _fit(network, goal, plan.training, transform.transformed_feature_spec(), fn_args)
    export(network, goal.answers, plan.features, transform, fn_args.serving_model_dir)


def _fit(network: Any, goal: Target, training: TrainingConfig, spec: dict[str, Any], fn_args: Any) -> None:
    schedule = tf_keras.optimizers.schedules.CosineDecay(training.learning_rate, training.steps)
    # AutoGraph would rewrite every function of tf_keras that a step calls, which takes a minute and changes nothing.
    network.train_step = tf.autograph.experimental.do_not_convert(network.train_step)
    network.compile(
        optimizer=tf_keras.optimizers.Adam(schedule),
        loss=goal.loss,
        metrics=list(goal.metrics),
    )
    network.fit(
        train_input.training(fn_args.train_files, spec, training.batch_size, training.shuffle_buffer, training.seed),
        steps_per_epoch=training.steps,
        callbacks=[tf_keras.callbacks.TensorBoard(fn_args.model_run_dir, write_graph=False, update_freq=_CURVE_STEPS)],
        verbose=2,
    )
