"""Pretrained vectors: the formats of their files, and the operation that looks them up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.features import ops
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.ops import FeatureGroup
from components.features.vector_file import read_vectors
from tests.support.data.tolerances import float32_sum

WIDTH = 4


def write_npz(path: Path, values: Any, vectors: Any) -> str:
    np.savez(path, values=np.array(values), vectors=np.array(vectors))
    return str(path)


def transform(values: list[Any], dtype: tf.DType, **options: Any) -> np.ndarray[Any, Any]:
    (feature,) = FeaturesConfig.model_validate({"columns": {"x": {"vectors": options}}}).declared
    tensor = tf.RaggedTensor.from_row_splits(
        tf.constant([value for value in values if value is not None], dtype),
        np.cumsum([0, *(value is not None for value in values)]),
    ).to_sparse()
    (output,) = ops.apply(FeatureGroup((feature,), column("x", tensor)), None).values()
    return np.array(output)


@pytest.mark.parametrize("header", ["", "3 2\n"], ids=["glove", "word2vec"])
def test_text_file(header: str, tmp_path: Path) -> None:
    path = tmp_path / "words.vec"
    path.write_text(f"{header}the 1.5 -2\nnew york 0.25 1e-3\nété 0 7 \n", encoding="utf-8")
    values, vectors = read_vectors(str(path), 2)
    assert values == [b"the", b"new york", "été".encode()]
    np.testing.assert_array_equal(vectors, np.array([[1.5, -2], [0.25, 1e-3], [0, 7]], np.float32))
    assert len(read_vectors(str(path), 2, most=1).values) == 1


@pytest.mark.parametrize("values", [[3, -1], ["3", "-1"], [b"3", b"-1"]], ids=["int", "text", "bytes"])
def test_npz_file(values: list[Any], tmp_path: Path) -> None:
    read = read_vectors(write_npz(tmp_path / "v.npz", values, [[1, 2], [3, 4]]), 2)
    assert read.values == [b"3", b"-1"]
    assert read.vectors.dtype == np.float32


def test_first_of_equal_values_counts(tmp_path: Path) -> None:
    values, vectors = read_vectors(write_npz(tmp_path / "v.npz", ["b", "a", "b"], [[1], [2], [3]]), 1)
    assert (values, vectors.tolist()) == ([b"b", b"a"], [[1], [2]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"a 1 2\nb 3\n", "vector 2 has 1 numbers, the first one 2"),
        ("a.txt", b"", "no line has a value and numbers"),
        ("a.txt", b"a 1 x\n", "could not convert"),
        ("a.txt", b"a 1 nan\n", "expected finite numbers, received [ 1. nan] for b'a'"),
        ("a.txt", b"a 1 2 3\n", "expected 2 numbers per value, received 3"),
        ("a.npz", b"PK", "expected vectors of values"),
    ],
)
def test_unfit_file_is_an_error(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)):
        read_vectors(str(tmp_path / name), 2)


@pytest.mark.parametrize(
    ("values", "vectors"),
    [(["a"], [1.0]), (["a", "b"], [[1.0]]), ([1.5], [[1.0]]), (np.empty(0, "U1"), np.empty((0, 2)))],
    ids=["1-D", "lengths", "dtype", "empty"],
)
def test_unfit_arrays_are_an_error(values: Any, vectors: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected vectors of values, received something else: `values` has"):
        read_vectors(write_npz(tmp_path / "v.npz", values, vectors), 1)


@pytest.mark.parametrize("dtype", [tf.string, tf.int64], ids=["text", "int"])
def test_values_have_the_vectors_of_the_file(dtype: tf.DType, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    known = random.permutation(100_000)[:5000]
    vectors = random.normal(size=(5000, WIDTH)).astype(np.float32)
    path = write_npz(tmp_path / "v.npz", known, vectors)
    asked = [None, *random.integers(0, 100_000, 3000).tolist(), *known[:50].tolist()]
    texts = asked if dtype == tf.int64 else [None if value is None else str(value) for value in asked]
    by_value = dict(zip(known.tolist(), vectors, strict=True))
    expected = np.array([by_value.get(value, np.zeros(WIDTH)) for value in asked], np.float32)
    assert 100 < (expected != 0).any(axis=1).sum() < 1000
    np.testing.assert_array_equal(transform(texts, dtype, path=path, width=WIDTH), expected)


def test_mean_of_known_words(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "v.npz", ["red", "shoe", "été"], [[1, 2], [3, 5], [-1, 0]])
    texts = ["Red shoe, red!", "blue", None, "", "ÉTÉ blue"]
    expected = np.array([[5 / 3, 3], [0, 0], [0, 0], [0, 0], [-1, 0]], np.float32)
    float32_sum(3).assert_close(transform(texts, tf.string, path=path, width=2, words=True), expected)
    cased = transform(["RED red"], tf.string, path=path, width=2, words=True, lower=False)
    np.testing.assert_array_equal(cased, [[1, 2]])


def test_one_number_per_value_is_a_feature_of_one_number(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "v.npz", ["a"], [[2.5]])
    np.testing.assert_array_equal(transform(["a", "b"], tf.string, path=path, width=1), [2.5, 0])


def test_batch_without_rows(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "v.npz", ["a"], [[1, 2]])
    assert transform([], tf.string, path=path, width=2).shape == (0, 2)
    assert transform([], tf.string, path=path, width=2, words=True).shape == (0, 2)
