"""Both APIs of a real server reject invalid requests, and answer and count unusual requests."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families

from tests.support.servers import sum_model
from tests.support.servers.serving import Server, b64, predict, serving
from tests.support.servers.sum_model import ROW, example

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = sum_model.write(tmp_path_factory.mktemp("models"))
    options = ("--model_name=sum", f"--model_base_path={model}", "--enable_batching", "--request_log_key=trip")
    with serving(tmp_path_factory.mktemp("server"), *options) as server:
        server.wait("sum", 1)
        yield server


def ask_rest(server: Server, *rows: Any, signature: str = "") -> tuple[int, Any]:
    body = {"signature_name": signature, "instances": list(rows)}
    status, answer = server.ask("POST", "/v1/models/sum:predict", json.dumps(body).encode())
    return status, answer.get("predictions", answer.get("error"))


def ask_grpc(server: Server, **inputs: Any) -> tuple[grpc.StatusCode, Any]:
    with server.stubs() as (stub, _):
        try:
            response = stub.Predict(predict("sum", "" if "examples" in inputs else "raw", **inputs))
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, tf.make_ndarray(response.outputs["y"]).tolist()


def count(server: Server, metric: str, **labels: str) -> float:
    """Return the sum of a metric's samples with these labels."""
    text = server.ask("GET", "/monitoring/prometheus/metrics")[1].decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f":tensorflow:serving:{metric}" and labels.items() <= sample.labels.items()
    )


def test_usual_rows_are_answered(server: Server) -> None:
    row = {**ROW, "trip": "t1", "tips": 1.5}
    assert ask_rest(server, b64(example(row)), b64(example({"fare": 1.0}))) == (200, [8, 1])
    assert ask_rest(server, dict(ROW), signature="raw") == (200, [8])
    assert ask_grpc(server, examples=[example(row)]) == (grpc.StatusCode.OK, [8])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"", "at least one feature, received none"),
        (example({"faer": 2.0}), "received 'faer'; did you mean 'fare'?"),
        (example({**ROW, "fare": [2.0, 2.0]}), "expected at most 1 value(s), received 2"),
        (example({**ROW, "fare": 2}), "expected float_list, received int64_list"),
        (example({**ROW, "fare": math.nan}), "column 'fare': expected a value"),
        (example({"hour": 3}), "column 'fare': expected a value"),
    ],
    # The bytes of a tf.Example differ from process to process.
    ids=["empty", "misspelt", "two values", "integer", "NaN", "missing"],
)
def test_wrong_examples_are_rejected_and_counted(server: Server, row: bytes, words: str) -> None:
    labels = {"model_name": "sum", "version": "1", "status": "INVALID_ARGUMENT"}
    before = {api: count(server, "request_count", **labels, entrypoint=api) for api in ("REST", "GRPC")}
    status, error = ask_rest(server, b64(row))
    assert (status, words in error) == (400, True), error
    code, details = ask_grpc(server, examples=[row])
    assert (code, words in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), details
    after = {api: count(server, "request_count", **labels, entrypoint=api) for api in ("REST", "GRPC")}
    assert after == {api: number + 1 for api, number in before.items()}


def test_wrong_columns_are_rejected(server: Server) -> None:
    for fare in (math.nan, math.inf):
        status, error = ask_rest(server, {**ROW, "fare": fare}, signature="raw")
        assert (status, "column 'fare': expected a value in each row" in error) == (400, True), error
        columns = {"fare": np.float32([fare]), "hour": np.array([3]), "payment": ["Cash"], "past": np.ones([1, 1], "f")}
        code, details = ask_grpc(server, **columns)
        assert (code, "column 'fare': expected a value" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_wrong_requests_do_not_affect_those_in_their_batch(server: Server) -> None:
    rows = [b"" if number % 5 == 3 else example({"fare": float(number)}) for number in range(40)]
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda row: ask_rest(server, b64(row)), rows))
    assert [status for status, _ in answers] == [400 if number % 5 == 3 else 200 for number in range(40)]
    assert [answer for status, answer in answers if status == 200] == [[n] for n in range(40) if n % 5 != 3]


def test_unusual_values_are_answered_and_counted(server: Server) -> None:
    def counts() -> dict[tuple[str, str], float]:
        labels = {"model_name": "sum", "version": "1"}
        return {
            (feature, kind): count(server, "feature_anomalies_total", **labels, feature=feature, kind=kind)
            for feature, kind in (("fare", "out_of_range"), ("payment", "out_of_domain"), ("payment", "missing"))
        }

    before = counts()
    unusual = {**ROW, "fare": 1e30, "payment": "Mobile"}
    large = pytest.approx(1e30, rel=float(np.finfo(np.float32).eps), abs=0.0)
    assert ask_rest(server, b64(example(unusual))) == (200, [large])
    assert ask_rest(server, unusual, {**ROW, "payment": ""}, signature="raw") == (200, [large, 8])
    # A rejected request is counted only as rejected.
    assert ask_rest(server, {**unusual, "fare": math.nan}, signature="raw")[0] == 400
    after = counts()
    assert {key: after[key] - number for key, number in before.items()} == {
        ("fare", "out_of_range"): 2, ("payment", "out_of_domain"): 2, ("payment", "missing"): 1,
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"signature_name": 1}', b'{"instances": []}'])
def test_bodies_that_name_no_row_are_counted(server: Server, body: bytes) -> None:
    labels = {"entrypoint": "REST", "status": "INVALID_ARGUMENT"}
    before = count(server, "request_count", **labels)
    assert server.ask("POST", "/v1/models/sum:predict", body)[0] == 400
    assert count(server, "request_count", **labels) == before + 1


def test_bodies_that_are_too_large_are_counted(server: Server) -> None:
    labels = {"entrypoint": "REST", "status": "RESOURCE_EXHAUSTED"}
    before = count(server, "request_count", **labels)
    status, answer = server.ask("POST", "/v1/models/sum:predict", b" " * (9 << 20))
    assert (status, "8388608" in answer["error"]) == (413, True), answer
    assert count(server, "request_count", **labels) == before + 1
