"""Reads the outputs of a training in a new process: its model, its last checkpoint and its curves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.runs.trainer_runs import Prepared, eval_examples
from tests.support.servers.in_fork_server import in_child

_TABLE = re.compile(r"network/[^/]+/rows/\.ATTRIBUTES/VARIABLE_VALUE")


@dataclass(frozen=True)
class Trained:
    """The outputs of a training.

    Attributes:
      auc: of the exported model, on the eval split.
      predictions: the exported model's on the eval split, by serving_default.
      restored: Predictions of a plain network with the weights of the last checkpoint.
      dtypes: All dtypes in the graph of serving_default.
      saved: shapes of the exported model's variables, sorted.
      weights: Shapes of the network's variables, sorted.
      tables: Shape of a table of IDs in the last checkpoint → number of its shards.
    """

    auc: float
    predictions: Any
    restored: Any
    dtypes: set[str]
    saved: list[tuple[int, ...]]
    weights: list[tuple[int, ...]]
    tables: dict[tuple[int, ...], int]


def look(prepared: Prepared, folder: Path) -> Trained:
    """Read the outputs of a finished training."""
    trained: Trained = in_child(folder / "look.log", _look, prepared, folder)
    return trained


def measure_served(prepared: Prepared, folder: Path) -> tuple[float, int]:
    """Return the AUC of an exported model of any kind on the eval split, and the number of its variables."""
    answer: tuple[float, int] = in_child(folder / "look.log", _measure_served, prepared, folder)
    return answer


def curves(folder: Path) -> dict[str, dict[int, Any]]:
    """Tag → step → what TensorBoard shows there, of all event files in a folder: a number, or a histogram's buckets."""
    import tensorflow as tf
    from tensorflow.core.util.event_pb2 import Event

    points: dict[str, dict[int, Any]] = {}
    files = [str(file) for file in sorted(folder.glob("events.*"))]
    for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
        event = Event.FromString(record)
        for value in event.summary.value:
            points.setdefault(value.tag, {})[event.step] = tf.make_ndarray(value.tensor)
    return points


def _look(prepared: Prepared, folder: Path) -> Trained:
    import tensorflow as tf
    import tensorflow_transform as tft
    from sklearn.metrics import roc_auc_score

    from components.features.plan import FeaturePlan
    from components.models.build import build
    from components.models.inputs import inputs
    from components.trainer import checkpoint
    from pipeline.authoring.config import load

    rows = tf.constant(eval_examples(prepared.uri("ExampleGen", "examples")))
    model = folder / "model" / "Format-Serving"
    signatures = tf.saved_model.load(str(model)).signatures
    (label,) = signatures["transform_labels"](examples=rows).values()
    (probability,) = signatures["serving_default"](examples=rows).values()

    config = load(prepared.config).config
    plan = FeaturePlan(features=config.features, labels=config.data.declared_labels, task=config.data.task)
    sizes = tft.TFTransformOutput(prepared.uri("Transform", "transform_graph")).vocabulary_size_by_name
    network = build(config.model, inputs(plan, sizes), 1)
    checkpoints = str(folder / "run" / "checkpoints")
    last = checkpoint.path(checkpoints, checkpoint.newest(checkpoints))
    tf.train.Checkpoint(network=network).restore(last).assert_existing_objects_matched().expect_partial()
    logits = network(signatures["transform_features"](examples=rows), training=False)

    reader = tf.train.load_checkpoint(last)
    shapes = {name: shape for name, shape in reader.get_variable_to_shape_map().items() if _TABLE.fullmatch(name)}
    # TensorFlow lists a shard under its variable's name between two zero bytes, followed by the shard's position.
    listed = reader.debug_string()
    saved = [shape for name, shape in tf.train.list_variables(str(model / "variables" / "variables"))]
    return Trained(
        auc=float(roc_auc_score(label.numpy().ravel(), probability.numpy().ravel())),
        predictions=probability.numpy(),
        restored=tf.sigmoid(logits).numpy(),
        dtypes=set(re.findall(r"\bDT_\w+", str(signatures["serving_default"].graph.as_graph_def()))),
        saved=sorted(tuple(shape) for shape in saved if shape),
        weights=sorted(tuple(weight.shape) for weight in network.variables),
        tables={tuple(shape): max(1, listed.count(f"\0{name}\0".encode())) for name, shape in shapes.items()},
    )


def _measure_served(prepared: Prepared, folder: Path) -> tuple[float, int]:
    import tensorflow as tf
    from sklearn.metrics import roc_auc_score

    rows = tf.constant(eval_examples(prepared.uri("ExampleGen", "examples")))
    model = folder / "model" / "Format-Serving"
    signatures = tf.saved_model.load(str(model)).signatures
    (label,) = signatures["transform_labels"](examples=rows).values()
    (probability,) = signatures["serving_default"](examples=rows).values()
    variables = len(tf.train.list_variables(str(model / "variables" / "variables")))
    return float(roc_auc_score(label.numpy().ravel(), probability.numpy().ravel())), variables
