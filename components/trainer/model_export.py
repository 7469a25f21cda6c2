"""The export of a training: the SavedModel with its signatures, the request schema and the index of a retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2

from components.base.errors import MachineError
from components.data import skew_sample
from components.features import aged_vocabulary
from components.features.plan import FeaturePlan
from components.results.decision import Decisions
from components.results.request_schema import RequestSchema
from components.trainer import decision, item_index, item_to_item, projector, request_columns, warm_start
from components.trainer.export import export
from components.trainer.plan import TrainingPlan
from components.trainer.training import Outputs, Training

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs


def export_model(plan: TrainingPlan, fn_args: FnArgs, training: Training) -> None:
    """Write the SavedModel of a training, and its predictions for Transform's sample.

    Args:
      plan: The features, the model and the training section.
      fn_args: TFX's FnArgs with the folder of the model.
      training: The training, which has ended.

    Raises:
      MachineError: If Transform has not written a sample, or the SavedModel differs from the trained model.
    """
    sample = skew_sample.read(fn_args.transform_graph_path)
    if sample is None:
        raise MachineError(
            f"{fn_args.transform_graph_path}: expected a sample of the transformed rows, received none",
            "run Transform again with --no-cache",
        )
    network = training.restore_network()
    if plan.training.tensorboard.projector:
        projector.write(network, plan.features, training.transform, f"{fn_args.model_run_dir}/train")
    index = None
    outputs: Outputs = training.head.outputs_by_name
    decisions = Decisions({})
    if plan.features.task == "retrieval":
        # The outputs of an index are computed from embeddings, which are not calibrated.
        build_index = item_to_item.build if plan.model.is_item_to_item else item_index.build
        index = build_index(network, plan, training.transform, training.rows)
    else:
        outputs, decisions = training.decide_outputs(network)
    model = training.forest.finish(network) if training.forest else network
    schema = _describe_requests(plan.features, training.transform, fn_args)
    directory = fn_args.serving_model_dir
    temporary = f"{directory}.partial"
    _remove(directory, temporary)
    try:
        predictions = export(model, outputs, plan.features, training.transform, temporary, index, sample, schema)
        request_columns.write(schema, temporary)
        if decisions.labels:
            decision.write(decisions, temporary)
        warm_start.describe(model, plan.features, training.transform, temporary, index.user if index else None)
        for file in aged_vocabulary.list_files(fn_args.transform_graph_path):
            copy = f"{temporary}/assets.extra/{aged_vocabulary.FOLDER}/{file.rpartition('/')[2]}"
            tf.io.gfile.makedirs(copy.rpartition("/")[0])
            tf.io.gfile.copy(file, copy)
        if predictions is not None:
            # Next to the model and so outside the pushed version, because these are rows of the training data.
            skew_sample.write_predictions(predictions, directory.rpartition("/")[0])
        tf.io.gfile.rename(temporary, directory)
    finally:
        _remove(temporary)


def _describe_requests(plan: FeaturePlan, transform: tft.TFTransformOutput, fn_args: FnArgs) -> RequestSchema:
    """Describe the rows that the model takes; without a schema (in a search), by the types of the transform graph."""
    specs, features = transform.raw_feature_spec(), plan.features
    return request_columns.describe_requests(
        request_columns.read_schema(fn_args.schema_path) if fn_args.schema_path else schema_pb2.Schema(),
        request_columns.read_statistics(fn_args.custom_config.get("statistics", {})),
        {name: specs[name] for name in features.columns_read},
        features.histories,
    )


def _remove(*folders: str) -> None:
    for folder in folders:
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)
