"""The embeddings of a trained network for TensorBoard's projector, labeled with the values of their columns."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from google.protobuf import text_format
from tensorboard.plugins.projector import projector_config_pb2

from components.features.plan import FeaturePlan
from components.trainer import warm_start
from components.trainer.warm_start import IdVocabulary

_CONFIG = "projector_config.pbtxt"
"""The name that TensorBoard expects, in a folder with a file of events."""
_MOST_ROWS = 10_000
"""Maximum number of rows of a feature. Vocabularies begin with the most frequent values."""


def write(network: tf_keras.Model, plan: FeaturePlan, transform: tft.TFTransformOutput, folder: str) -> None:
    """Write a file of vectors and a file of labels for each table of a feature's IDs.

    Args:
      network: The trained network, under no strategy.
      plan: The features.
      transform: The transform graph, which has the vocabularies.
      folder: Folder with TensorBoard's events.
    """
    vocabularies = warm_start.read_vocabularies(plan, transform)
    config = projector_config_pb2.ProjectorConfig()
    for table, feature, rows in warm_start.list_tables(network):
        # The weights of a linear model are no vectors.
        if rows.shape[1] < 2:
            continue
        labels = _label_rows(vocabularies[feature], len(rows))[:_MOST_ROWS]
        vectors = rows[:_MOST_ROWS].astype("<f4")
        name = f"{table}_{feature}".replace("/", "_")
        with tf.io.gfile.GFile(f"{folder}/{name}.bytes", "wb") as file:
            file.write(vectors.tobytes())
        with tf.io.gfile.GFile(f"{folder}/{name}.tsv", "w") as file:
            # A file with one column has no header.
            file.write("".join(f"{label}\n" for label in labels))
        embedding = config.embeddings.add(tensor_name=name, tensor_path=f"{name}.bytes", metadata_path=f"{name}.tsv")
        embedding.tensor_shape.extend(vectors.shape)
    with tf.io.gfile.GFile(f"{folder}/{_CONFIG}", "w") as file:
        file.write(text_format.MessageToString(config))


def _label_rows(vocabulary: IdVocabulary, rows: int) -> list[str]:
    """Return a label per row, without tabs and line breaks."""
    values = [] if vocabulary.values is None else [value.decode(errors="replace") for value in vocabulary.values]
    first = [] if vocabulary.values is None else ["(missing)"]
    labels = [*first, *values]
    labels += [f"(id {number})" for number in range(len(labels), rows)]
    return [" ".join(label.split()) or "(blank)" for label in labels]
