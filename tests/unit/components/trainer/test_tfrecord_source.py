"""Tests that folds of TFRecord files depend on the features of a row, and not on its label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from components.features import feature_names
from components.trainer.tfrecord_source import TfrecordSource
from components.trainer.validation_part import Selection, ValidationPart

SPEC = {
    "sex": tf.io.FixedLenFeature([], tf.int64),
    "age": tf.io.FixedLenFeature([2], tf.float32),
    "tags": tf.io.VarLenFeature(tf.string),
    "counts": tf.io.RaggedFeature(tf.int64),
    feature_names.LABEL: tf.io.FixedLenFeature([], tf.int64),
    feature_names.WEIGHT: tf.io.FixedLenFeature([], tf.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Write 800 rows with 64 different combinations of features and random labels and weights, and return the path."""
    random = np.random.default_rng(5)
    path = str(tmp_path / "examples")
    with tf.io.TFRecordWriter(path, "GZIP") as writer:
        for combination in random.integers(0, 64, 800).tolist():
            label = random.integers(0, 2)
            features = {
                "sex": tf.train.Feature(int64_list=tf.train.Int64List(value=[combination % 2])),
                "age": tf.train.Feature(float_list=tf.train.FloatList(value=[combination // 2 % 4, 0.5])),
                "tags": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"] * (combination // 8 % 2))),
                "counts": tf.train.Feature(int64_list=tf.train.Int64List(value=range(combination // 16))),
                feature_names.LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                feature_names.WEIGHT: tf.train.Feature(float_list=tf.train.FloatList(value=[1 + label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return path


def test_rows_with_equal_features_are_in_one_fold(file: str) -> None:
    source = TfrecordSource([file], SPEC, Selection(ValidationPart(1.0, 3, folds=4), None), batch_rows=1000)
    (columns,) = source.in_order()
    features = {"sex": columns["sex"], "age": columns["age"][:, 0], "counts": columns["counts"].row_lengths()}
    frame = pd.DataFrame({name: column.numpy() for name, column in features.items()})
    frame["tags"] = tf.RaggedTensor.from_sparse(columns["tags"]).row_lengths().numpy()
    folds = frame.assign(fold=columns[feature_names.FOLD].numpy()).groupby(list(frame))["fold"]
    assert folds.ngroups == 64
    assert set(folds.nunique()) == {1}
    assert set(folds.first()) == {0, 1, 2, 3}
