"""Tests of the metadata of files: a FlatBuffer and an archive, read by the field numbers of the public schema."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from components.edge import file_metadata
from components.edge.device_program import File
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from tests.support.data.file_metadata import read_metadata
from tests.support.data.tolerances import rounding
from tests.support.programs import programs

pytestmark = pytest.mark.both_lines

CLASSES = ["three", "seven\nup", "caf\udce9"]
"""A name with a line end, and a name with a byte that is not UTF-8."""
PREPROCESSING = {
    "features": [
        {"name": "size", "op": "z_score", "columns": ["cm"], "options": {}, "analysis": [170.5, 12.25, 140, 200]},
        {
            "name": "photo",
            "op": "image",
            "columns": ["jpeg"],
            "options": {"height": 1, "width": 2, "channels": 3},
        },
        {"name": "town", "op": "vocab", "columns": ["city"], "options": {"oov_buckets": 1}, "vocabulary": ["Paris"]},
    ],
    "classes": CLASSES,
}
ROWS = {
    "size": np.linspace(-2, 2, 30, dtype=np.float32)[:, None],
    "photo": np.random.default_rng(1).random((30, 6), np.float32),
    "town": np.arange(30, dtype=np.int64)[:, None] % 3,
}


def plan(task: Any) -> FeaturePlan:
    features = FeaturesConfig(columns={"cm": "z_score"})
    return FeaturePlan(features=features, labels=(Label("digit"),), task=task)


def convert(io_type: tf.DType) -> bytes:
    """Convert a network with three classes; with integers at its ends unless `io_type` is float32."""
    tf.random.set_seed(1)
    weights = {name: tf.random.normal([width, 3]) for name, width in (("size", 1), ("photo", 6), ("town", 3))}

    def predict(size: tf.Tensor, photo: tf.Tensor, town: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = size @ weights["size"] + photo @ weights["photo"] + tf.gather(weights["town"], town[:, 0])
        return {"probabilities": tf.nn.softmax(logits)}

    specs = [tf.TensorSpec([1, values.shape[1]], tf.as_dtype(values.dtype), name=name) for name, values in ROWS.items()]
    function = tf.function(predict, input_signature=specs).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
    if io_type != tf.float32:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = io_type
        converter.representative_dataset = lambda: (
            {name: values[row : row + 1] for name, values in ROWS.items()} for row in range(30)
        )
    return bytes(converter.convert())


@pytest.fixture(scope="module", params=[tf.float32, tf.int8, tf.uint8], ids=["float32", "int8", "uint8"])
def files(request: pytest.FixtureRequest) -> tuple[bytes, bytes]:
    """Return a file without and with metadata."""
    content = convert(request.param)
    description = file_metadata.describe("digits", "run 7", plan("multiclass"), PREPROCESSING)
    return content, file_metadata.add(content, description, "tflite_int8")


def test_predictions_are_equal_to_the_last_bit(files: tuple[bytes, bytes]) -> None:
    without, with_metadata = (File(content, 1).predict_rows(ROWS) for content in files)
    assert without.shape == (30, 3)
    np.testing.assert_array_equal(without, with_metadata)
    graphs = [schema.ModelT.InitFromPackedBuf(content).subgraphs[0] for content in files]
    assert [len(graph.tensors) for graph in graphs] == [len(graphs[0].tensors)] * 2


def test_model_and_tensors_are_described(files: tuple[bytes, bytes]) -> None:
    content = files[1]
    model = read_metadata(content)
    assert (model.text(0), model.text(2)) == ("digits tflite_int8", "run 7")
    [graph] = model.list_fields(3)
    inputs, [output] = graph.list_fields(2), graph.list_fields(3)
    interpreter = Interpreter(model_content=content)
    signature = interpreter.get_signature_runner().get_input_details()
    names = {details["index"]: name for name, details in signature.items()}
    details = interpreter.get_input_details()
    # A reader finds a tensor by its position in the graph.
    assert [tensor.text(0) for tensor in inputs] == [names[tensor["index"]] for tensor in details]
    by_name = {tensor.text(0): tensor for tensor in inputs}
    size, photo, town = (by_name[name] for name in ("size", "photo", "town"))
    assert size.text(1).startswith("operation z_score of cm; ")
    assert town.text(1).startswith("operation vocab of city; ")
    assert photo.text(1).startswith("pixels of jpeg, from 0 to 1: height 1, width 2, channels 3, flattened")
    for tensor, mean, deviation in ((size, 170.5, 12.25), (photo, 0.0, 255.0)):
        [unit] = tensor.list_fields(4)
        assert unit.byte(0) == 1  # NormalizationOptions
        assert (unit.fields(1).floats(0), unit.fields(1).floats(1)) == ([mean], [deviation])
    assert not town.has(4)
    assert [tensor.fields(3).byte(0) for tensor in (size, photo, town, output)] == [1, 2, 1, 1]
    image = photo.fields(3).fields(1)
    assert (image.byte(0), image.fields(1).uint32(0), image.fields(1).uint32(1)) == (1, 2, 1)  # RGB, width, height
    assert output.text(1).startswith("probabilities of the classes of digit, in the order of labels.txt")


def test_scales_are_those_of_the_interpreter(files: tuple[bytes, bytes]) -> None:
    interpreter = Interpreter(model_content=files[1])
    [graph] = read_metadata(files[1]).list_fields(3)
    described = zip(
        (*graph.list_fields(2), *graph.list_fields(3)),
        (*interpreter.get_input_details(), *interpreter.get_output_details()),
        strict=True,
    )
    for tensor, details in described:
        dtype, (scale, zero_point) = np.dtype(details["dtype"]), details["quantization"]
        if dtype in (np.int8, np.uint8):
            assert tensor.text(1).endswith(f"; {dtype}: number = {scale:.9g} * (stored - {zero_point})")
            limits = np.iinfo(dtype)
            ends = [scale * (stored - zero_point) for stored in (limits.max, limits.min)]
            assert [tensor.fields(5).floats(number)[0] for number in (0, 1)] == rounding(2).approx(ends)
        else:
            assert "stored" not in tensor.text(1)
            is_limited = tensor.text(0) in ("photo", "probabilities")
            assert tensor.has(5) == is_limited
            if is_limited:
                assert (tensor.fields(5).floats(0), tensor.fields(5).floats(1)) == ([1.0], [0.0])


def test_threshold_of_a_decision_is_in_the_metadata() -> None:
    content = convert(tf.float32)
    for threshold in (None, 0.25):
        described = file_metadata.describe("digits", "run 7", plan("binary"), PREPROCESSING, threshold)
        restored = file_metadata.ModelDescription.from_dict(dataclasses.asdict(described))
        [graph] = read_metadata(file_metadata.add(content, restored, "")).list_fields(3)
        [output] = graph.list_fields(3)
        if threshold is None:
            assert not output.has(4)
            assert output.text(1) == "probability of the label digit"
        else:
            [unit] = output.list_fields(4)
            assert unit.byte(0) == 3  # ScoreThresholdingOptions
            assert unit.fields(1).float32(0) == threshold
            assert output.text(1) == "probability of the label digit; the class is 1 from 0.25"


def test_archive_has_a_class_per_line(files: tuple[bytes, bytes]) -> None:
    [graph] = read_metadata(files[1]).list_fields(3)
    [file] = graph.list_fields(3)[0].list_fields(6)
    assert (file.text(0), file.byte(2)) == ("labels.txt", 2)  # TENSOR_AXIS_LABELS
    with zipfile.ZipFile(io.BytesIO(files[1])) as archive:
        assert archive.read("labels.txt") == b"three\nseven\\nup\ncaf\xe9\n"
        # Android's extractor does not decompress.
        assert [entry.compress_type for entry in archive.infolist()] == [zipfile.ZIP_STORED]


def test_classes_depend_on_the_task() -> None:
    labels, limits = [], []
    for task in ("binary", "regression"):
        description = file_metadata.describe("", "", plan(task), {"features": []})
        labels.append(description.labels)
        limits.append(description.output.limits)
    assert (labels, limits) == ([("digit",), ()], [(0, 1), None])


_READER = """
import json, sys
from tensorflow_lite_support.metadata.cc.python import _pywrap_metadata_version
from tflite_support import metadata
shown = metadata.MetadataDisplayer.with_model_file(sys.argv[1])
labels = shown.get_associated_file_buffer("labels.txt").decode("latin-1")
oldest = _pywrap_metadata_version.GetMinimumMetadataParserVersion(shown.get_metadata_buffer())
print(json.dumps([json.loads(shown.get_metadata_json()), shown.get_packed_associated_file_list(), labels, oldest]))
"""


@pytest.mark.needs("tflite_codegen")
@pytest.mark.needs("lsusb")
def test_reader_of_tflite_support_shows_the_metadata(files: tuple[bytes, bytes], tmp_path: Path) -> None:
    python = Path(programs.find("tflite_codegen")).parent / "python"
    file = tmp_path / "model.tflite"
    file.write_bytes(files[1])
    ended = subprocess.run([python, "-c", _READER, file], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    metadata, packed, labels, oldest_parser = json.loads(ended.stdout)
    assert metadata["min_parser_version"] == oldest_parser
    assert (metadata["name"], metadata["version"], packed) == ("digits tflite_int8", "run 7", ["labels.txt"])
    assert labels.split("\n") == ["three", "seven\\nup", "caf\xe9", ""]
    [graph] = metadata["subgraph_metadata"]
    inputs = {tensor["name"]: tensor for tensor in graph["input_tensor_metadata"]}
    [unit] = inputs["size"]["process_units"]
    assert unit == {"options_type": "NormalizationOptions", "options": {"mean": [170.5], "std": [12.25]}}
    assert inputs["photo"]["content"] == {
        "content_properties_type": "ImageProperties",
        "content_properties": {"color_space": "RGB", "default_size": {"width": 2, "height": 1}},
    }
    [output] = graph["output_tensor_metadata"]
    [labels_file] = output["associated_files"]
    assert (labels_file["name"], labels_file["type"]) == ("labels.txt", "TENSOR_AXIS_LABELS")
