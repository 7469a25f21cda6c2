"""Batches are evaluated in parts if the predictions of all classes do not fit in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma

from components.evaluator import saved_model
from components.evaluator.columnar import divide
from components.evaluator.saved_model import Model


def test_number_of_rows_per_call_depends_on_the_number_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tf.constant([["a", "b", "c"]])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def predict(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.shape(examples)[0]
        return {"classes": tf.tile(names, [rows, 1]), "p": tf.ones([rows])}

    tf.saved_model.save(tf.Module(), str(tmp_path), signatures={"serving_default": predict})
    model = Model(str(tmp_path), tfma.ModelSpec(signature_name="serving_default", prediction_key="p"), None)
    assert model.most_rows == (1 << 22) // 3
    monkeypatch.setattr(saved_model, "_VALUES", 2)
    assert model.most_rows == 1


@pytest.mark.parametrize(("most_rows", "sizes"), [(2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_parts_together_equal_the_batch(most_rows: int, sizes: list[int]) -> None:
    lists = pa.array([[1], [], [2, 3], None, [4]], pa.large_list(pa.int64()))
    texts = pa.array([[b"a"], [b"b"], None, [], [b"c", b"d"]], pa.large_list(pa.large_binary()))
    batch = pa.RecordBatch.from_arrays([lists, texts], ["numbers", "texts"])
    parts = list(divide(batch, most_rows))
    assert [part.num_rows for part in parts] == sizes
    assert pa.Table.from_batches(parts).to_pydict() == batch.to_pydict()
    # Code that reads the values of a column assumes that its offsets begin at 0.
    assert [part.column(0).offsets[0].as_py() for part in parts] == [0] * len(parts)
