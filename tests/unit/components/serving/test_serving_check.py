"""Tests of the serving check, which blesses a model if a model server returns its predictions in time."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2, prediction_log_pb2
from tfx.components.infra_validator import error_types
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_executor
from tfx.proto import example_gen_pb2
from tfx.types import Channel, artifact_utils
from tfx.types.standard_artifacts import Examples, InfraBlessing, Model

from components.base import child_process
from components.base.errors import MachineError
from components.data import skew_sample
from components.data.examples import ParquetWriter
from components.data.skew_sample import Predictions
from components.serving import executor, sample_check
from components.serving.check_result import FILE
from components.serving.component import InfraValidator
from components.serving.config import ServingConfig
from components.serving.executor import Executor
from components.serving.local_server_runner import LocalServerRunner
from tests.support.programs import forked_serving
from tests.support.runs.command import ROOT
from tests.support.servers.forked_command import ForkedCommand
from tests.support.servers.serving import Server, columns_model, example, line, serving

pytestmark = pytest.mark.both_lines

XS = (0.0, 1.5, -3.0, 1e6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a trained model and raw examples, and return their folder."""
    folder = tmp_path_factory.mktemp("check")
    model(folder / "model")
    split = folder / "examples/Split-eval"
    split.mkdir(parents=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(split / "data-00000-of-00001.gz"), options) as writer:
        for x in XS:
            writer.write(example(x))
    names, column = ["x"], pa.array([[x] for x in XS], pa.large_list(pa.float32()))
    (folder / "columns/Split-eval").mkdir(parents=True)
    columns = ParquetWriter(str(folder / "columns/Split-eval/data.parquet"), pa.schema({"x": column.type}))
    columns.write(pa.RecordBatch.from_arrays([column], names))
    columns.close()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """Start a model server that has loaded the model."""
    shutil.copytree(folder / "model/Format-Serving", folder / "served/1")
    options = ("--model_name=line", f"--model_base_path={folder / 'served'}", "--allow_unverified")
    with serving(folder / "server", *options) as server:
        server.wait("line", 1)
        yield server


@pytest.fixture
def running(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the server of the check by the running server, because starting a server takes seconds."""

    class Running(LocalServerRunner):
        def Start(self) -> None:  # noqa: N802 - TFX's name
            pass

        def WaitUntilRunning(self, deadline: float) -> None:  # noqa: N802 - TFX's name
            pass

        def GetEndpoint(self) -> str:  # noqa: N802 - TFX's name
            return f"127.0.0.1:{server.rpc}"

    monkeypatch.setattr(executor, "LocalServerRunner", Running)


@pytest.fixture
def check(folder: Path, tmp_path: Path) -> Callable[..., tuple[InfraBlessing, dict[str, Any]]]:
    """Return a function that runs the check, and returns the blessing and the contents of the result file."""

    def run(
        model: Path | None = None,
        examples: str = "examples",
        requested: int = 64,
        **section: Any,
    ) -> Any:
        node = InfraValidator(
            ServingConfig(examples=requested, **section),
            "line",
            model=Channel(type=Model),
            examples=Channel(type=Examples),
        )
        trained, rows, blessing = Model(), Examples(), InfraBlessing()
        trained.uri, rows.uri, blessing.uri = str(model or folder / "model"), str(folder / examples), str(tmp_path)
        rows.split_names = artifact_utils.encode_split_names(["eval"])
        if examples == "columns":
            examples_utils.set_payload_format(rows, example_gen_pb2.FORMAT_PARQUET)
        inputs = {"model": [trained], "examples": [rows]}
        context = base_executor.BaseExecutor.Context(tmp_dir=f"{tmp_path / 'scratch'}/", unique_id="1")
        Executor(context).Do(inputs, {"blessing": [blessing]}, dict(node.exec_properties))
        return blessing, json.loads((tmp_path / FILE).read_text())

    return run


def model(folder: Path, **changes: Any) -> Path:
    """Create a model artifact. The running server has the same model, without the changes."""
    line(folder, 1, **changes).rename(folder / "Format-Serving")
    return folder


def test_good_model_is_blessed_and_gets_warm_up_requests(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check must not depend on the working directory.
    monkeypatch.chdir(tmp_path)
    blessing, result = check()
    assert blessing.get_int_custom_property("blessed") == 1
    assert result["passed"]
    assert result["why"] is None
    assert result["compared"] == 64
    assert result["max_difference"] < 1e-6
    assert result["timed"] == 100
    assert 0 < result["p50_ms"] <= result["p99_ms"]
    warm_up = tmp_path / "stamped_model/assets.extra/tf_serving_warmup_requests"
    records = [*tf.data.TFRecordDataset(str(warm_up)).as_numpy_iterator()]
    rows = {
        prediction_log_pb2.PredictionLog.FromString(record).predict_log.request.inputs["examples"].string_val[0]
        for record in records
    }
    assert rows <= {example(x) for x in XS}
    assert len(records) == 16


def columns(folder: Path, **changes: Any) -> Path:
    """Create a model artifact with signatures that take columns."""
    columns_model(folder, 1, **changes).rename(folder / "Format-Serving")
    return folder


@pytest.mark.extended
def test_other_signatures_get_a_warm_up_request_with_the_same_rows(check: Any, tmp_path: Path) -> None:
    blessing, _ = check(columns(tmp_path / "model"), requested=len(XS))
    assert blessing.get_int_custom_property("blessed") == 1
    warm_up = tmp_path / "stamped_model/assets.extra/tf_serving_warmup_requests"
    logs = map(prediction_log_pb2.PredictionLog.FromString, tf.data.TFRecordDataset(str(warm_up)).as_numpy_iterator())
    requests = [log.predict_log.request for log in logs]
    names = [request.model_spec.signature_name for request in requests]
    assert names == [*["serving_default"] * len(XS), "raw", "transform_features"]
    xs = tf.make_ndarray(requests[-2].inputs["x"]).tolist()
    assert sorted(xs) == sorted(XS)
    # TFX reads the rows in this order.
    rows = [example(x) for x in xs]
    assert tf.make_ndarray(requests[-1].inputs["examples"]).tolist() == rows
    assert [request.inputs["examples"].string_val[0] for request in requests[:-2]] == rows


@pytest.mark.extended
def test_model_that_rejects_a_row_as_columns_is_not_blessed(check: Any, tmp_path: Path) -> None:
    blessing, result = check(columns(tmp_path / "model", refused=XS[1]), requested=len(XS))
    assert blessing.get_int_custom_property("blessed") == 0
    assert "the server refuses a row" in result["why"]
    assert "x is refused" in result["why"]


@pytest.mark.extended
def test_model_that_cannot_be_loaded_is_rejected_with_the_reason_of_the_server(
    check: Any, folder: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken/Format-Serving"
    shutil.copytree(folder / "model/Format-Serving", broken)
    next(broken.glob("variables/*.data*")).write_bytes(b"")
    blessing, result = check(model=broken.parent)
    assert blessing.get_int_custom_property("blessed") == 0
    assert not result["passed"]
    assert "cannot load the model" in result["why"]


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("examples", ["examples", "columns"])
def test_first_examples_of_the_split_are_requested(check: Any, tmp_path: Path, examples: str) -> None:
    blessing, result = check(examples=examples, requested=3)
    assert blessing.get_int_custom_property("blessed") == 1
    assert result["compared"] == 3
    assert result["timed"] == 100


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("predicted", "section", "why"),
    [
        ({"slope": 2.5}, {}, "y: expected ["),
        ({"output": "score"}, {}, "received nothing"),
        ({}, {"max_p99_ms": 1e-3}, "expected 99 of 100 requests to take 0.001 ms at most"),
    ],
)
def test_wrong_or_slow_answers_are_rejected(
    check: Any, tmp_path: Path, predicted: dict[str, Any], section: dict[str, Any], why: str
) -> None:
    blessing, result = check(model(tmp_path / "model", **predicted), **section)
    assert blessing.get_int_custom_property("blessed") == 0
    assert not result["passed"]
    assert why in result["why"]
    assert not (tmp_path / "stamped_model").exists()


@pytest.mark.extended
@pytest.mark.usefixtures("running")
def test_difference_within_the_tolerance_passes(check: Any, tmp_path: Path) -> None:
    blessing, result = check(model(tmp_path / "model", slope=2.0001), tolerance=1e-3)
    assert blessing.get_int_custom_property("blessed") == 1
    assert 0 < result["max_difference"] < 1e-3


SAMPLE = (*XS, float("nan"))


def with_sample(folder: Path, change: Callable[[np.ndarray], np.ndarray] = lambda y: y) -> Path:
    """Create a model artifact with the predictions of the Trainer for sample rows.

    Args:
        folder: Folder of the artifact.
        change: Function of the correct predictions, y = 2 x + 1, that returns the predictions to write.
    """
    values = np.array([2.0 * x + 1.0 for x in SAMPLE], np.float32)
    rows = np.array([example(x) for x in SAMPLE], object)
    skew_sample.write_predictions(Predictions(rows, {"y": change(values)}), str(model(folder)))
    return folder


@pytest.mark.usefixtures("running")
def test_answers_are_compared_with_the_predictions_of_the_trained_model(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Send the sample in several requests.
    monkeypatch.setattr(sample_check, "_ROWS", 2)
    blessing, result = check(with_sample(tmp_path / "model"))
    assert blessing.get_int_custom_property("blessed") == 1
    assert result["sampled"] == len(SAMPLE)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (
            lambda y: y + np.float32(0.01),
            r"y, row 0 of the sample: expected \[1\.0\d*\] within 0.0001, received \[1\.0\]",
        ),
        (
            lambda y: np.where(y == -5, np.float32(-5.01), y),
            r"y, row 2 of the sample: expected \[-5\.01\d*\] within 0.0001, received \[-5\.0\]",
        ),
        (lambda y: np.nan_to_num(y), r"y, row 4 of the sample: expected \[0\.0\] within 0.0001, received \[nan\]"),
        (lambda y: y.astype(float), r"y, row 0 of the sample: expected \[1\.0\] within"),
        (lambda y: y[:, np.newaxis], r"y, row 0 of the sample: expected \[1\.0\] within"),
    ],
)
def test_answer_that_differs_from_the_trained_model_is_an_error_without_a_verdict(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, differs: str
) -> None:
    monkeypatch.setattr(sample_check, "_ROWS", 2)
    with pytest.raises(MachineError, match=f"answers differ from the trained model: {differs}") as error:
        check(with_sample(tmp_path / "model", change))
    assert error.value.details[0].startswith("x: float_list")
    assert not (tmp_path / FILE).exists()


def assert_no_verdict(folder: Path) -> None:
    """Assert that the folder of the blessing does not contain a file that TFX or this project reads as a verdict."""
    assert not [file.name for file in folder.iterdir() if "BLESSED" in file.name or file.name == FILE]


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], None]:
    """Return a function that kills the next `times` servers with SIGKILL, right after a method of the runner."""

    def install(times: int, method: str) -> None:
        before = getattr(LocalServerRunner, method)

        def then_kill(runner: LocalServerRunner, *arguments: Any) -> Any:
            nonlocal times
            result = before(runner, *arguments)
            if times:
                times -= 1
                assert runner._process is not None
                runner._process.kill()
            return result

        monkeypatch.setattr(LocalServerRunner, method, then_kill)

    return install


# The server is killed when it starts, or after it has begun to listen.
@pytest.mark.parametrize("method", ["Start", pytest.param("GetEndpoint", marks=pytest.mark.slow)])
def test_server_that_is_killed_twice_is_a_failure(
    check: Any, tmp_path: Path, killed: Callable[[int, str], None], method: str
) -> None:
    killed(2, method)
    message = "the serving check could not finish: the server was killed by SIGKILL.*, 2 times in a row"
    with pytest.raises(MachineError, match=message):
        check()
    assert_no_verdict(tmp_path)


@pytest.mark.extended
def test_server_that_is_killed_once_is_replaced(check: Any, killed: Callable[[int, str], None]) -> None:
    killed(1, "Start")
    blessing, result = check()
    assert blessing.get_int_custom_property("blessed") == 1
    assert (result["passed"], result["compared"]) == (True, 64)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_server_that_is_killed_between_two_requests_is_replaced_once(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    runners: list[LocalServerRunner] = []
    compare, start = Executor._compare, LocalServerRunner.Start

    def then_kill(*arguments: Any) -> None:
        compare(*arguments)
        [*_, runner] = runners
        if len(runners) <= times:
            assert runner._process is not None
            runner._process.kill()

    def start_one(runner: LocalServerRunner) -> None:
        runners.append(runner)
        start(runner)

    monkeypatch.setattr(Executor, "_compare", then_kill)
    monkeypatch.setattr(LocalServerRunner, "Start", start_one)
    if times == 1:
        blessing, result = check()
        assert blessing.get_int_custom_property("blessed") == 1
        # Only requests to the second server count.
        assert result["compared"] == 64
    else:
        with pytest.raises(MachineError, match="the server was killed by SIGKILL, 2 times in a row"):
            check()
        assert_no_verdict(tmp_path)
    assert len(runners) == 2


def test_server_that_cannot_start_is_a_failure(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho no such module\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(child_process, "_PYTHON", str(tmp_path / "python"))
    with pytest.raises(MachineError, match="the server ended with exit code 1 before it listened, 2 times") as error:
        check()
    assert error.value.details == ("last line of the server's output: no such module",)
    assert_no_verdict(tmp_path)


def test_server_without_disk_space_is_a_failure(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(LocalServerRunner):
        def Start(self) -> None:  # noqa: N802 - TFX's name
            raise OSError(errno.ENOSPC, "No space left on device", "ready.json")

    monkeypatch.setattr(executor, "LocalServerRunner", Full)
    with pytest.raises(MachineError, match=r"the disk is full: ready\.json could not be written"):
        check()
    assert_no_verdict(tmp_path)


@pytest.mark.extended
@pytest.mark.usefixtures("running")
def test_model_that_is_not_loaded_in_time_is_a_failure(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(*_: Any, **__: Any) -> get_model_status_pb2.GetModelStatusResponse:
        response = get_model_status_pb2.GetModelStatusResponse()
        response.model_version_status.add().state = get_model_status_pb2.ModelVersionStatus.LOADING
        return response

    monkeypatch.setattr(
        executor.model_service_pb2_grpc, "ModelServiceStub", lambda _channel: SimpleNamespace(GetModelStatus=status)
    )
    with pytest.raises(MachineError, match=r"not loaded within serving\.max_loading_seconds"):
        check(max_loading_seconds=1)
    assert_no_verdict(tmp_path)


class AnswerError(grpc.RpcError):  # type: ignore[misc]
    """The error that a gRPC stub raises."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self.code, self.details = lambda: code, lambda: "some words"


def replace_predict(monkeypatch: pytest.MonkeyPatch, predict: Any) -> None:
    """Replace the method of gRPC's stub that sends a PredictRequest."""
    stub = SimpleNamespace(Predict=predict)
    monkeypatch.setattr(executor.prediction_service_pb2_grpc, "PredictionServiceStub", lambda _: stub)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=() if code.name in ("INVALID_ARGUMENT", "UNAVAILABLE") else pytest.mark.extended)
        for code in grpc.StatusCode
    ],
)
def test_only_an_answer_about_the_model_is_a_verdict(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    def answer(*_: Any, **__: Any) -> None:
        raise AnswerError(code)

    replace_predict(monkeypatch, answer)
    refusals = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED"}
    if code.name in refusals:
        blessing, result = check()
        assert blessing.get_int_custom_property("blessed") == 0
        assert result["why"] == "the server refuses a row: some words"
    else:
        with pytest.raises(MachineError, match=f"could not finish: the server answers {code.name}: some words"):
            check()
        assert_no_verdict(tmp_path)


@pytest.mark.usefixtures("running")
def test_stop_during_a_request_does_not_give_a_verdict(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise error_types.GracefulShutdown("Got signal 15.")

    replace_predict(monkeypatch, stop)
    with pytest.raises(error_types.GracefulShutdown, match="Got signal 15"):
        check()
    assert_no_verdict(tmp_path)


@pytest.mark.extended
def test_server_is_forked_from_a_process_without_threads(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "model/Format-Serving", tmp_path / "line/1")
    command = ForkedCommand(forked_serving.main, [str(tmp_path / "line/1")], ROOT, os.environ)
    code, out, err = command.wait(120)
    assert (code, out) == (0, "loaded\n"), err
