"""The pushed model, loaded in a fresh process, predicts what the Evaluator recorded."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet

from components.base.serving_images import VERTEX_PREDICTION
from components.features import expression, feature_names, label_values
from pipeline.authoring.config import load
from tests.support.data import doc_pages
from tests.support.runs.command import SUPPORT, Runs, program
from tests.support.servers.in_fork_server import in_child, main_of
from tests.support.servers.serving import serving

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]

ROWS = 10
OLDER, CLIENTS = (
    Path(__file__).parents[2] / ".cache" / name / "bin" / "python" for name in ("tensorflow_2_15", "inference_clients")
)


@pytest.fixture(scope="module")
def evaluator_rows(taxi: Runs, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return ten raw rows, and the Evaluator's inputs and predictions for them."""
    log = tmp_path_factory.mktemp("seen") / "log"
    return in_child(log, main_of, "evaluator_program", taxi.output, taxi.first.result["run"], ROWS, "tips")


@pytest.fixture(scope="module")
def answers(taxi: Runs, evaluator_rows: Any) -> Any:
    """Return the pushed model's predictions for the same rows."""
    return program(str(SUPPORT / "programs" / "predict.py"), taxi.first.result["pushed"], request=evaluator_rows)


@pytest.mark.parametrize("signature", ["serving_default", "raw"])
def test_pushed_model_predicts_what_was_evaluated(evaluator_rows: Any, answers: Any, signature: str):
    predictions = [probability for [probability] in answers[signature]["probability"]]
    # Float32 rounding: how a product is summed up depends on the size of the batch.
    assert predictions == pytest.approx(evaluator_rows["predictions"], rel=1e-5, abs=1e-7)
    # The comparison is only meaningful with different predictions and with missing values.
    assert max(predictions) - min(predictions) > 0.1
    assert sum(None in values for values in evaluator_rows["columns"].values()) > 3


@pytest.mark.slow
@pytest.mark.needs("g++")
def test_cpp_functions_of_tensorflow_serving_predict_the_same(
    taxi: Runs, evaluator_rows: Any, answers: Any, tmp_path: Path
) -> None:
    """TensorFlow Serving loads a model by LoadSavedModel and calls its session, without Python."""
    source, loader, rows = SUPPORT / "programs" / "load_model.cc", tmp_path / "load_model", tmp_path / "rows"
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    # The program names nothing of this library, whose static initializers register sessions and kernels.
    flags += ["-Wl,--no-as-needed", "-l:libtensorflow_cc.so.2", f"-Wl,-rpath,{tf.sysconfig.get_lib()}"]
    subprocess.run(["g++", "-O1", "-w", str(source), "-o", str(loader), *flags], check=True, timeout=600)
    with tf.io.TFRecordWriter(str(rows)) as writer:
        for row in evaluator_rows["unlabelled"]:
            writer.write(base64.b64decode(row))
    command = [str(loader), taxi.first.result["pushed"], str(rows), "probability"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    predictions = [float(value) for value in process.stdout.split()]
    expected = np.ravel(answers["serving_default"]["probability"])
    np.testing.assert_allclose(predictions, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.skipif(not OLDER.exists(), reason="no TensorFlow 2.15: `make clients` installs it")
def test_tensorflow_of_vertex_ais_container_predicts_the_same(taxi: Runs, evaluator_rows: Any, answers: Any) -> None:
    """The newest prebuilt container of Vertex AI has an older TensorFlow than the one that exports the model."""
    [release] = re.findall(r"/tf2-cpu\.(\d+)-(\d+):", VERTEX_PREDICTION)
    imported = subprocess.run([OLDER, "-c", "import tensorflow; print(tensorflow.__version__)"], capture_output=True)
    assert imported.stdout.decode().split(".")[:2] == list(release)
    command = [OLDER, SUPPORT / "programs" / "predict.py", taxi.first.result["pushed"]]
    process = subprocess.run(command, input=json.dumps(evaluator_rows), capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    older = json.loads(process.stdout.splitlines()[-1])
    assert (older["signatures"], older["variables"]) == (answers["signatures"], answers["variables"])
    for signature in ("serving_default", "raw"):
        np.testing.assert_allclose(
            older[signature]["probability"], answers[signature]["probability"], rtol=1e-5, atol=1e-7
        )


@pytest.mark.slow
@pytest.mark.skipif(not CLIENTS.exists(), reason="no inference clients: `make clients` installs them")
def test_request_and_client_of_the_page_predict_the_same(taxi: Runs, tmp_path: Path) -> None:
    page = doc_pages.ROOT / "docs" / "how-to" / "inference-protocol.md"
    [client] = doc_pages.blocks(page, "python")
    [request] = re.findall(r"^\$ cat trip.json\n(.*?)^\$ curl", page.read_text(), re.DOTALL | re.MULTILINE)
    pushed = Path(taxi.first.result["pushed"])
    with serving(tmp_path, "--model_name=taxi", f"--model_base_path={pushed.parent}") as server:
        server.wait("taxi", int(pushed.name))
        status, answer = server.ask("POST", "/v2/models/taxi/infer", request.encode())
        assert status == 200, answer
        program_text = client.replace("127.0.0.1:8501", f"127.0.0.1:{server.rest}")
        assert program_text != client
        process = subprocess.run([CLIENTS, "-c", program_text], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    printed = [float(number) for number in re.findall(r"\d\.\d+(?:e-\d+)?", process.stdout)]
    np.testing.assert_allclose(printed, answer["outputs"][0]["data"] * 2, rtol=1e-5, atol=1e-7)


def test_both_request_forms_give_the_same_predictions(answers: Any):
    assert answers["raw"] == answers["serving_default"]


def test_labels_are_those_that_were_evaluated(evaluator_rows: Any, answers: Any):
    assert answers["transform_labels"]["label"] == evaluator_rows["labels"]
    assert set(evaluator_rows["labels"]) == {0, 1}


@pytest.mark.parametrize(
    "name", ["taxi", pytest.param("clicks", marks=pytest.mark.slow), pytest.param("digits", marks=pytest.mark.slow)]
)
def test_labels_of_leakage_are_those_of_the_model(name: str, request: pytest.FixtureRequest):
    runs: Runs = request.getfixturevalue(name)
    config = load(f"configs/{name}.yaml").config
    parsed = expression.parse(config.data.label)
    raw = _split(runs.output / "artifacts/ExampleGen/examples")
    columns = {column: _first(raw.column(column)) for column in parsed.columns}
    computed = label_values.labels(parsed, config.data.task, columns)
    transformed = _split(runs.output / "artifacts/Transform/transformed_examples")
    trained = np.asarray(_first(transformed.column(feature_names.LABEL)))
    if config.data.task == "multiclass":
        # The classes have other numbers.
        assert len(set(zip(computed, trained, strict=True))) == len(set(computed)) == len(set(trained)) == 10
    else:
        np.testing.assert_array_equal(computed, trained)
        assert set(trained) == {0, 1}


def _split(examples: Path) -> pa.Table:
    """Return the eval split of the only artifact in a folder."""
    (folder,) = examples.glob("*/Split-eval")
    return parquet.read_table(folder)


def _first(column: pa.ChunkedArray) -> pa.Array:
    """Return the first value in every row, or null."""
    return pa.array([None if not row else row[0] for row in column.to_pylist()], column.type.value_type)


def test_no_signature_requires_the_label(taxi: Runs, answers: Any):
    signatures = answers["signatures"]
    assert set(signatures) == {"serving_default", "raw", "transform_features", "transform_labels", "transformed"}
    # The answers above came from examples without tips, too.
    assert "tips" not in {*signatures.pop("raw"), *signatures.pop("transformed")}
    assert set(map(tuple, signatures.values())) == {("examples",)}


def test_exported_model_contains_only_weights(answers: Any):
    weights = {name for name, shape in answers["variables"].items() if shape}
    # One tensor per weight: an optimizer would add two more tensors of the same shape.
    assert len(weights) == 10
    assert all(name.startswith("weights/") for name in weights)
