"""Reads the batches of an epoch from URLs in a fork of the node server, and prints the labels in their order.

The arguments are the number of rows, `cache` and the URLs.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import tensorflow as tf

from components.features import feature_names
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import InputPipeline

BATCH = 4


def main(arguments: Sequence[str]) -> int:
    """Read the batches."""
    rows, cache, *files = arguments
    spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("x", feature_names.LABEL)}
    config = TrainingConfig.model_validate({"cache": cache, "batch_size": BATCH})
    dataset = InputPipeline(files, spec, config, BATCH).dataset(InputShard())
    batches = itertools.islice(dataset, int(rows) // BATCH)
    print(json.dumps([int(label) for _, labels in batches for label in labels[:, 0]]))  # noqa: T201 - the answer
    return 0
