"""Tests of parsing the role of a process in a cluster from TF_CONFIG."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.trainer.cluster import tf_config
from components.trainer.cluster.tf_config import Role

PARAMETER_SERVER = {"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
MULTI_WORKER = {"worker": ("a:1", "b:1")}
VERTEX = {"chief": ("a:1",), "worker": ("b:1", "c:1")}


@pytest.mark.parametrize(
    ("kind", "index", "cluster", "is_lead", "is_server", "workers"),
    [
        ("chief", 0, PARAMETER_SERVER, True, False, 2),
        ("worker", 0, PARAMETER_SERVER, False, True, 2),
        ("ps", 0, PARAMETER_SERVER, False, True, 2),
        ("evaluator", 0, PARAMETER_SERVER, False, False, 2),
        ("worker", 0, MULTI_WORKER, True, False, 2),
        ("worker", 1, MULTI_WORKER, False, False, 2),
        ("evaluator", 0, MULTI_WORKER, False, False, 2),
        ("chief", 0, VERTEX, True, False, 3),
        ("worker", 0, VERTEX, False, False, 3),
    ],
)
def test_role_follows_from_the_kind_and_index_of_the_task(
    kind: str, index: int, cluster: Any, is_lead: bool, is_server: bool, workers: int
) -> None:
    role = Role(kind, index, cluster)
    assert (role.is_lead, role.is_server, role.workers) == (is_lead, is_server, workers)
    assert role.name == f"{kind}-{index}"


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (("127.0.0.1:1", "localhost:2", "[::1]:3", "127.1.2.3:4"), True),
        (("127.0.0.1:1", "10.0.0.7:2"), False),
        (("127.0.0.1:1", "[fd00::1]:2"), False),
        (("127.0.0.1:1", "0.0.0.0:2"), False),
        (("trainer-worker-0.default.svc:2222",), False),
    ],
)
def test_cluster_is_on_one_machine_if_all_addresses_are_loopback(workers: tuple[str, ...], expected: bool) -> None:
    assert Role("chief", 0, {"chief": ("127.0.0.1:5",), "worker": workers}).is_on_one_machine is expected


def test_written_role_can_be_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    role = Role("worker", 1, PARAMETER_SERVER)
    monkeypatch.setenv("TF_CONFIG", role.tf_config)
    assert tf_config.role() == role


@pytest.mark.parametrize("value", [None, "", "{}", '{"cluster": {}}', '{"environment": "cloud"}'])
def test_role_is_none_without_a_cluster(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    assert tf_config.role() is None


@pytest.mark.parametrize("value", ["{", "[1]", json.dumps({"cluster": MULTI_WORKER}), '{"cluster": 3, "task": {}}'])
def test_invalid_value_is_an_input_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(InputError, match="expected a JSON object with cluster and task") as raised:
        tf_config.role()
    assert value in raised.value.headline


@pytest.mark.parametrize("kind", ["chief", "worker", "ps", "evaluator"])
def test_evaluator_is_removed_from_the_cluster_that_tensorflow_sees(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Kubeflow's operator lists the evaluator in the cluster.

    A coordinator would wait for it forever, because an evaluator does not run a TensorFlow server.
    """
    cluster_with_evaluator = {**PARAMETER_SERVER, "evaluator": ("e:1",)}
    config = {"cluster": cluster_with_evaluator, "task": {"type": kind, "index": 0}, "environment": "cloud"}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert tf_config.role() == Role(kind, 0, PARAMETER_SERVER)
    tf_config.remove_evaluator()
    cluster = {kind: list(addresses) for kind, addresses in PARAMETER_SERVER.items()}
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == cluster
    assert (resolver.task_type, resolver.task_id) == (kind, 0)
    assert json.loads(os.environ["TF_CONFIG"]) == {**config, "cluster": cluster}


def test_remove_evaluator_does_nothing_without_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    tf_config.remove_evaluator()
    assert "TF_CONFIG" not in os.environ
