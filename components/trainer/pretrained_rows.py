"""Embeddings that begin with pretrained vectors from a file, such as word vectors."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.base.errors import InputError
from components.features.plan import FeaturePlan
from components.features.vector_file import PretrainedVectors, read_vectors
from components.features.vector_ops import Pretrained
from components.trainer.warm_start import list_weights, read_vocabularies


def assign(network: tf_keras.Model, plan: FeaturePlan, transform: tft.TFTransformOutput) -> None:
    """Assign pretrained vectors to the embeddings of the values that their files contain; see `Pretrained`.

    Args:
      network: A new network, created under the strategy whose scope this is called in.
      plan: The features.
      transform: The transform graph.

    Raises:
      InputError: If a file cannot be read, or the network does not have a table with embeddings of a feature.
    """
    ops = {feature.name: feature.op for feature in plan.features.declared}
    files = {
        name: read_vectors(op.vectors, op.embedding or 0)
        for name, op in ops.items()
        if isinstance(op, Pretrained) and op.vectors is not None
    }
    if not files:
        return
    vocabularies, assigned = read_vocabularies(plan, transform), set[str]()
    for weight in list_weights(network):
        if not weight.rows:
            continue
        features = weight.features or ()
        ends = itertools.accumulate(weight.rows)
        # Other tables, such as the weights of a linear part, have other widths.
        parts = {
            name: slice(end - rows, end)
            for name, rows, end in zip(features, weight.rows, ends, strict=True)
            if name in files and files[name].vectors.shape[1] == weight.variable.shape[1]
        }
        if not parts:
            continue
        table = tf.convert_to_tensor(weight.variable).numpy()
        for name, rows in parts.items():
            known = _assign_known(table[rows], vocabularies[name].values or (), files[name])
            logging.info("%s: %d values of %s begin with pretrained vectors", weight.name, known, name)
        weight.variable.assign(table)
        assigned |= parts.keys()
    if missing := files.keys() - assigned:
        raise InputError(
            f"vectors: expected a network with embeddings of {', '.join(sorted(missing))}, received one without",
            "use the operation vectors, or another model",
        )


def _assign_known(rows: npt.NDArray[Any], entries: Sequence[bytes], file: PretrainedVectors) -> int:
    """Assign the vectors of a file to the rows of a vocabulary's entries, from row 1; return their number."""
    position = {value: number for number, value in enumerate(file.values)}
    known = [row for row, entry in enumerate(entries, 1) if entry in position]
    rows[known] = file.vectors[[position[entries[row - 1]] for row in known]]
    return len(known)
