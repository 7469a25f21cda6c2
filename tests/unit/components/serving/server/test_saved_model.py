"""Tests of loaded versions: inputs, outputs and errors of signatures, warm-up, and releasing memory."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf
from tensorflow.python.saved_model import loader_impl
from tensorflow_serving.apis import prediction_log_pb2

from components.serving.server.errors import RequestError
from components.serving.server.model_manager import load_verified
from components.serving.server.saved_model import SavedModel, Signature, TensorSpec
from tests.support.data.old_models import classifier
from tests.support.servers.serving import example, line

WARM_UP = Path("assets.extra", "tf_serving_warmup_requests")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return line(tmp_path_factory.mktemp("line"), 1)


@pytest.fixture(scope="module")
def model(folder: Path) -> SavedModel:
    return SavedModel(folder, 1)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return SavedModel(classifier(tmp_path_factory.mktemp("old"), 1), 1)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def texts(*values: bytes) -> Any:
    return np.array(values, object)


def test_outputs_equal_tensorflow(folder: Path, model: SavedModel) -> None:
    rows = [example(number / 7) for number in range(50)]
    expected = tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(rows))["y"].numpy()
    answers = model.signature("serving_default").run({"examples": texts(*rows)})
    np.testing.assert_array_equal(answers["y"], expected)


def test_functions_are_not_imported_with_the_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing functions holds the GIL, so that the server could not answer requests meanwhile."""
    functions = []
    load_graph = loader_impl.SavedModelLoader.load_graph

    def count(self: Any, graph: tf.Graph, tags: list[str]) -> Any:
        functions.append(len(self.get_meta_graph_def_from_tags(tags).graph_def.library.function))
        return load_graph(self, graph, tags)

    monkeypatch.setattr(loader_impl.SavedModelLoader, "load_graph", count)
    loaded = SavedModel(folder, 1)
    assert functions == [0]
    assert loaded.signature("loop").run({"n": np.array([2])})["steps"].tolist() == [2]


def test_inputs_and_outputs_are_matched_by_name(model: SavedModel) -> None:
    answers = model.signature("raw").run({"name": texts(b"a", b"\xff"), "x": floats(1, 2)})
    assert {name: value.tolist() for name, value in answers.items()} == {
        "y": [3, 5], "greeting": [b"hello a", b"hello \xff"], "name_bytes": [b"a", b"\xff"],
    }  # fmt: skip


def test_model_with_control_flow_is_served(model: SavedModel) -> None:
    assert model.signature("loop").run({"n": np.array([3, 0, 1])})["steps"].tolist() == [3, 3, 3]


def test_outputs_may_be_scalars_and_rows(old: SavedModel) -> None:
    signature = old.signature("facts")
    assert not signature.batches
    answers = signature.run({"x": floats(1, 2)})
    assert {name: value.tolist() for name, value in answers.items()} == {"name": b"old", "rows": 2, "doubled": [2, 4]}


@pytest.mark.parametrize(
    ("name", "inputs", "word"),
    [
        ("raw", {"x": floats(1)}, "expected the inputs ['name', 'x'], received ['x']"),
        ("raw", {"x": floats(1), "name": texts(b"a"), "z": floats(1)}, "received ['name', 'x', 'z']"),
        ("raw", {"x": floats(1).astype(float), "name": texts(b"a")}, "'x': expected float32, received float64"),
        ("raw", {"x": floats(1), "name": floats(1)}, "'name': expected string, received float32"),
        ("raw", {"x": texts(b"a"), "name": texts(b"a")}, "'x': expected float32, received string"),
        ("raw", {"x": floats(1)[0], "name": texts(b"a")}, "'x': expected shape [-1], received []"),
        ("raw", {"x": floats(1)[None], "name": texts(b"a")}, "'x': expected shape [-1], received [1, 1]"),
        ("pairs", {"pairs": np.zeros([2, 3], np.int64)}, "expected shape [-1, 2], received [2, 3]"),
    ],
)
def test_invalid_inputs_are_rejected_before_the_call(
    model: SavedModel, name: str, inputs: dict[str, Any], word: str
) -> None:
    with pytest.raises(RequestError) as caught:
        model.signature(name).check(inputs)
    assert (caught.value.http_status, word in str(caught.value)) == (400, True), caught.value


def test_inputs_of_a_request_must_have_the_same_number_of_rows() -> None:
    rows = TensorSpec(tf.float32, (-1,))
    signature = Signature("s", {"a": rows, "b": rows}, {"y": rows}, None)
    with pytest.raises(RequestError, match=r"the same number of rows in each input, received {'a': 1, 'b': 2}"):
        signature.check({"a": floats(1), "b": floats(1, 2)})


@pytest.mark.parametrize(
    ("inputs", "outputs", "batches"),
    [
        ([(-1,)], [(-1,)], True),
        ([(-1, 3), (-1,)], [(-1, -1)], True),
        ([(-1, -1)], [(-1,)], False),
        ([(1,)], [(-1,)], False),
        ([(-1,)], [()], False),
        ([(-1,)], [None], False),
        ([None], [(-1,)], False),
        ([], [(-1,)], False),
    ],
)
def test_shapes_decide_whether_a_signature_is_batched(inputs: list[Any], outputs: list[Any], batches: bool) -> None:
    accepted, returned = (
        {str(number): TensorSpec(tf.float32, shape) for number, shape in enumerate(shapes)}
        for shapes in (inputs, outputs)
    )
    assert Signature("s", accepted, returned, None).batches == batches


def test_missing_signature_is_an_error(model: SavedModel) -> None:
    with pytest.raises(RequestError, match=r"expected a signature of .*'serving_default'.*, received 'nope'"):
        model.signature("nope")


@pytest.mark.parametrize(
    ("name", "inputs", "word"),
    [
        ("serving_default", {"inputs": texts(b"\xff\xff")}, "Could not parse example input"),
        ("serving_default", {"inputs": texts(tf.train.Example().SerializeToString())}, "x"),
        ("strict", {"x": floats(-1)}, "x is below zero"),
    ],
)
def test_graph_errors_are_reported_in_one_line(old: SavedModel, name: str, inputs: dict[str, Any], word: str) -> None:
    with pytest.raises(RequestError) as caught:
        old.signature(name).run(inputs)
    assert (caught.value.http_status, word in str(caught.value), "\n" in str(caught.value)) == (400, True, False)


def load_with_warm_up(folder: Path, tmp_path: Path, *records: bytes) -> SavedModel:
    copy = shutil.copytree(folder, tmp_path / "1")
    (copy / WARM_UP).parent.mkdir()
    with tf.io.TFRecordWriter(str(copy / WARM_UP)) as writer:
        for record in records:
            writer.write(record)
    return load_verified(None, True, 1, copy)


def request(row: bytes, signature: str = "", name: str = "examples") -> bytes:
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto([row]))
    return bytes(log.SerializeToString())


def test_recorded_requests_warm_the_model_up(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    classify_log = prediction_log_pb2.PredictionLog()
    classify_log.classify_log.request.model_spec.name = "m"
    records = [request(example(1)), request(example(2), "serving_default"), classify_log.SerializeToString()]
    assert load_with_warm_up(folder, tmp_path, *records).warm_up_requests == 2
    assert "only requests to predict are run" in caplog.text


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (request(b"\xff"), "Could not parse"),
        (request(example(1), "nope"), "received 'nope'"),
        (request(example(1), name="rows"), "expected the inputs"),
        (b"\xff", "parsing"),
    ],
)
def test_failing_warm_up_fails_the_loading(folder: Path, tmp_path: Path, record: bytes, word: str) -> None:
    with pytest.raises(Exception, match=word):
        load_with_warm_up(folder, tmp_path, request(example(1)), record)


def test_closing_a_version_frees_its_memory(tmp_path: Path) -> None:
    module, table = tf.Module(), tf.Variable(tf.zeros([15_000_000]))
    module.table = table
    signature = tf.function(lambda x: {"y": tf.gather(table, x)}, [tf.TensorSpec([None], tf.int32, name="x")])
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": signature.get_concrete_function()})
    process, rss = psutil.Process(), []
    for _ in range(6):
        servable = SavedModel(tmp_path / "1", 1)
        servable.signature("serving_default").run({"x": np.array([1], np.int32)})
        servable.close()
        rss.append(process.memory_info().rss)
    # Every version holds 60 MB, so the last five would take 300 MB if they were not freed.
    assert rss[-1] - rss[0] < 150e6, rss


def test_lists_of_several_requests_are_padded_with_missing_values() -> None:
    inputs = {
        "item": TensorSpec(tf.int64, (-1,)),
        "past": TensorSpec(tf.int64, (-1, -1)),
        "prices": TensorSpec(tf.float32, (-1, -1)),
        "words": TensorSpec(tf.string, (-1, -1)),
    }
    signature = Signature("raw", inputs, {"y": TensorSpec(tf.float32, (-1,))}, None, pads=True)
    assert signature.batches
    assert not dataclasses.replace(signature, pads=False).batches, "it is not known which value is a missing one"
    short = {"item": [1], "past": [[5]], "prices": [[0.5]], "words": [[b"a"]]}
    long = {"item": [2, 3], "past": [[6, 7], [8, 9]], "prices": [[1, 2], [3, 4]], "words": [[b"b", b"c"], [b"", b"d"]]}
    requests = [
        {
            name: np.array(columns[name], object if name == "words" else spec.dtype.as_numpy_dtype)
            for name, spec in inputs.items()
        }
        for columns in (short, long)
    ]
    joined = {name: values.tolist() for name, values in signature.join(requests).items()}
    least = np.iinfo(np.int64).min
    assert joined["item"] == [1, 2, 3]
    assert joined["past"] == [[5, least], [6, 7], [8, 9]]
    assert np.isnan(joined["prices"][0][1])
    assert joined["prices"][1:] == [[1, 2], [3, 4]]
    assert joined["words"] == [[b"a", b""], [b"b", b"c"], [b"", b"d"]]
