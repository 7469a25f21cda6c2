"""The training of a model by a user's function `model.train`, and the check of its conversion to TensorFlow."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import tf_keras

from components.base import user_code
from components.base.errors import InputError
from components.features import feature_names
from components.models.inputs import Inputs
from components.results.model_outputs import PREDICTION_KEY
from components.trainer.frameworks.conversion import convert
from components.trainer.frameworks.predictor import Predictor
from components.trainer.frameworks.training_data import TrainingData, describe_inputs, name_columns, to_array, to_table
from components.trainer.memory_rows import read_training_split
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import MulticlassHead, PredictionHead
from components.trainer.training_rows import TrainingRows

_PROBES = 1000
"""Number of rows for which the converted model has to predict the same."""
_TOLERANCE = 1e-5
"""Maximum difference of two predictions, in units of a regression label's deviation."""


def train(
    function: str, plan: TrainingPlan, head: PredictionHead, features: Inputs, rows: TrainingRows
) -> tf_keras.Model:
    """Call the user's function, and convert the model that it returns.

    Args:
      function: Import path of the function.
      plan: The features and the training section.
      head: The outputs of the task.
      features: The transformed features.
      rows: The rows of the training split, which has rows that are held out.

    Returns:
      A network from transformed features to logits.

    Raises:
      InputError: If the rows do not fit into memory, the function fails, or the model cannot be converted or predicts
        other values than the library's own model.
    """
    data = _read_data(plan, head, features, rows)
    logging.info("training rows for %s: %d, held out: %d", function, len(data.train), len(data.validation))
    model = user_code.call(function, data)
    predictor = convert(model, data, features)
    network = predictor.build_network(features, head)
    probes = data.validation if len(data.validation) else data.train
    _check(network, predictor, head, data, probes.slice(0, _PROBES), features)
    return network


def _read_data(plan: TrainingPlan, head: PredictionHead, features: Inputs, rows: TrainingRows) -> TrainingData:
    split, folds, *_ = read_training_split(rows, features.features)
    inputs = describe_inputs(features)
    minutes = plan.training.max_minutes
    return TrainingData(
        train=to_table(split.where(folds == -1)),
        validation=to_table(split.where(folds >= 0)),
        task=plan.features.task,
        classes=tuple(head.classes) if isinstance(head, MulticlassHead) else (),
        columns=name_columns(inputs),
        id_columns=tuple(
            tree_input.feature for tree_input in inputs if tree_input.feature in features.ids and not tree_input.ids
        ),
        seed=plan.training.seed,
        seconds=None if minutes is None else 60 * minutes,
        label=feature_names.LABEL,
        weight=None if split.weight is None else feature_names.WEIGHT,
        inputs=inputs,
    )


def _check(
    network: tf_keras.Model,
    predictor: Predictor,
    head: PredictionHead,
    data: TrainingData,
    probes: pa.Table,
    features: Inputs,
) -> None:
    """Check that the network predicts the same as the library's own model.

    Raises:
      InputError: If it does not.
    """
    key = PREDICTION_KEY[data.task]
    arrays = {name: to_array(probes[name]) for name in features.features}
    predicted = head.outputs_by_name(network(arrays, training=False))[key].numpy()
    expected = head.outputs_by_name(predictor.compute_expected_logits(probes, head))[key].numpy()
    # The predictions themselves are float32 numbers.
    unit = head.scale[1] if head.scale else 1.0
    allowed = _TOLERANCE * unit + 4 * np.finfo(np.float32).eps * np.abs(expected)
    differences = np.abs(predicted - expected)
    if not np.all(differences <= allowed):
        row = int(np.nanargmax(np.max(np.nan_to_num(differences, nan=np.inf), axis=1)))
        raise InputError(
            f"model.train: expected a model that predicts the same in TensorFlow, within {_TOLERANCE:g} on "
            f"{len(predicted):,} rows; received {predicted[row].tolist()} instead of {expected[row].tolist()} in row "
            f"{row}",
            "this kind of model is not converted exactly; return another kind, or an OnnxModel or a TensorFlowModel",
        )
    logging.info(
        "the converted model predicts as the library's does: largest difference %.1e on %d rows",
        differences.max(),
        len(predicted),
    )
