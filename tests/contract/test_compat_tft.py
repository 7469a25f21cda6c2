"""The private parts of TFT that components.compat.tft uses exist, and write what TFT's own analysis writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.pipeline import AppliedPTransform
from tensorflow_transform import graph_context, impl_helper, schema_inference, tf2_utils
from tensorflow_transform.saved import saved_transform_io_v2

from components.compat import tft as compat
from tests.support.runs.ingest_runs import BEAM

pytestmark = pytest.mark.both_lines
SPECS = {"word": tf.TensorSpec([None], tf.string), "number": tf.TensorSpec([None, 2], tf.float32)}


@pytest.fixture(autouse=True)
def default_graph() -> None:
    """Reset the default graph: TFT looks there for metadata, and eager operations of other tests have added some."""
    tf.compat.v1.reset_default_graph()


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            impl_helper._trace_and_get_metadata,
            [
                "concrete_transform_fn",
                "structured_inputs",
                "preprocessing_fn",
                "base_temp_dir",
                "tensor_replacement_map",
            ],
        ),
        (impl_helper.make_tensor_to_arrow_converter, ["schema"]),
        (
            schema_inference.infer_feature_schema_v2,
            ["features", "concrete_metadata_fn", "evaluate_schema_overrides"],
        ),
        (schema_inference._get_tensor_value_to_key_map, ["features_dict"]),
        (
            saved_transform_io_v2.trace_and_update_module,
            ["module", "tf_function", "name", "strip_control_dependencies"],
        ),
        (tf2_utils.get_structured_inputs_from_func_graph, ["func_graph"]),
        (tf2_utils.supply_missing_inputs, ["structured_inputs", "batch_size"]),
        (graph_context.TFGraphContext, ["module_to_export", "temp_dir", "evaluated_replacements"]),
    ],
)
def test_the_functions_take_our_arguments(function: Callable[..., Any], parameters: list[str]) -> None:
    actual = list(inspect.signature(function).parameters)
    assert actual[: len(parameters)] == parameters, f"TFT changed {function}: it takes {actual}; change compat.tft"


@pytest.mark.extended
def test_the_graph_is_that_of_tfts_analysis(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary_words"
    vocabulary.write_bytes(b"b\na\n")

    def outputs(inputs: Any, path: Any) -> dict[str, tf.Tensor]:
        # The range of the first feature is determined by its vocabulary.
        return {"word": tft.apply_vocabulary(inputs["word"], path), "sum": tf.reduce_sum(inputs["number"], axis=1)}

    def ours(inputs: Any) -> dict[str, tf.Tensor]:
        with tf.init_scope():
            path = tf.constant(str(vocabulary))
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS, path)
        return outputs(inputs, path)

    def stock(inputs: Any) -> dict[str, tf.Tensor]:
        return outputs(inputs, tft.vocabulary(inputs["word"], vocab_filename="words"))

    function = compat.write_transform_graph(ours, SPECS, {"words": vocabulary.name}, str(tmp_path / "ours"))
    spec = {"word": tf.io.FixedLenFeature([], tf.string), "number": tf.io.FixedLenFeature([2], tf.float32)}
    rows = [{"word": word, "number": [1.0, 2.0]} for word in (b"a", b"b", b"b")]
    with tft_beam.Context(temp_dir=str(tmp_path / "tmp")), beam.Pipeline(argv=list(BEAM)) as pipeline:
        data = (pipeline | beam.Create(rows), tft.DatasetMetadata.from_feature_spec(spec))
        _ = data | tft_beam.AnalyzeDataset(stock) | tft_beam.WriteTransformFn(str(tmp_path / "stock"))
    written, expected = (tft.TFTransformOutput(str(tmp_path / name)) for name in ("ours", "stock"))
    assert written.transformed_metadata.schema == expected.transformed_metadata.schema
    assert written.vocabulary_by_name("words") == expected.vocabulary_by_name("words")
    batch = {"word": tf.constant([b"a", b"b", b"x"]), "number": tf.constant([[1.0, 2.0]] * 3)}
    vocabulary.unlink()
    for graph in (function, compat.load_transform_graph(str(tmp_path / "ours")), written.transform_features_layer()):
        result = {name: value.numpy().tolist() for name, value in graph(batch).items()}
        assert result == {"word": [1, 0, -1], "sum": [3.0, 3.0, 3.0]}


def test_a_call_of_the_graph_prints_no_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow would print the values of all inputs into the message of an error that it handles itself."""
    written = compat.write_transform_graph(
        lambda inputs: {"twice": 2 * inputs["number"], "word": inputs["word"]}, SPECS, {}, str(tmp_path)
    )
    inputs = {"word": tf.constant(["a", "b"]), "number": tf.constant([[1.0, 2.0], [3.0, 4.0]])}

    def fail(tensor: tf.Tensor) -> str:
        raise AssertionError("a tensor is printed")

    monkeypatch.setattr(type(inputs["word"]), "__repr__", fail)
    for function in (written, compat.load_transform_graph(str(tmp_path))):
        outputs = function(inputs)
        assert outputs["twice"].numpy().tolist() == [[2, 4], [6, 8]]
        assert outputs["word"].numpy().tolist() == [b"a", b"b"]


def test_graph_computes_some_features_of_some_columns(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary_words"
    vocabulary.write_bytes(b"b\na\n")

    def outputs(inputs: Any) -> dict[str, tf.Tensor]:
        with tf.init_scope():
            path = tf.constant(str(vocabulary))
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS, path)
        sums = {name: tf.sparse.reduce_sum(inputs[name], axis=1) for name in ("many", "others")}
        return {
            "word": tft.apply_vocabulary(inputs["word"], path),
            "width": tf.reduce_sum(inputs["number"], axis=1),
            "same_word": inputs["word"],
            **{name: tf.ensure_shape(total, [None]) for name, total in sums.items()},
        }

    sparse = tf.SparseTensorSpec([None, None], tf.float32)
    compat.write_transform_graph(outputs, {**SPECS, "many": sparse, "others": sparse}, {}, str(tmp_path / "graph"))
    graph = compat.LoadedTransformGraph(str(tmp_path / "graph" / "transform_fn"))
    many = tf.sparse.from_dense([[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]])

    def compute(words: tf.Tensor) -> Any:
        return graph({"many": many}, ["many", "others"]), graph({"word": words}, ["word", "width", "many", "same_word"])

    function = tf.function(compute, [tf.TensorSpec([None], tf.string)], autograph=False)
    module = tf.Module()
    module.resources, module.function = graph.resources, function
    tf.saved_model.save(module, str(tmp_path / "model"))
    vocabulary.unlink()
    # The graph is saved with its tables and files.
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    of_many, of_words = loaded.function(tf.constant([b"a", b"x"]))
    assert (of_many["many"].numpy().tolist(), of_many["others"].shape) == ([3.0, 0.0, 3.0], 3)
    assert of_words["word"].numpy().tolist() == [1, -1]
    assert of_words["same_word"].numpy().tolist() == [b"a", b"x"]
    assert of_words["width"].numpy().tolist() == of_words["many"].numpy().tolist() == [0.0, 0.0]


def test_beams_node_lacks_only_two_defaults() -> None:
    compat.repair_deep_copies()
    parameters = inspect.signature(AppliedPTransform.__init__).parameters
    assert [name for name, parameter in parameters.items() if parameter.default is None] == [
        "environment_id",
        "annotations",
    ]
    assert list(parameters)[:5] == ["self", "parent", "transform", "full_label", "main_inputs"]
