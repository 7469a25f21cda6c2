"""Who a process is in a cluster, as TF_CONFIG tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.errors import InputError
from components.trainer.cluster import roles
from components.trainer.cluster.roles import Role

SERVED = {"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
IN_STEP = {"worker": ("a:1", "b:1")}
VERTEX = {"chief": ("a:1",), "worker": ("b:1", "c:1")}


@pytest.mark.parametrize(
    ("kind", "index", "cluster", "is_lead", "is_server", "workers"),
    [
        ("chief", 0, SERVED, True, False, 2),
        ("worker", 0, SERVED, False, True, 2),
        ("ps", 0, SERVED, False, True, 2),
        ("evaluator", 0, SERVED, False, False, 2),
        ("worker", 0, IN_STEP, True, False, 2),
        ("worker", 1, IN_STEP, False, False, 2),
        ("evaluator", 0, IN_STEP, False, False, 2),
        ("chief", 0, VERTEX, True, False, 3),
        ("worker", 0, VERTEX, False, False, 3),
        ("master", 0, {"master": ("a:1",), "worker": ("b:1",)}, True, False, 2),
    ],
)
def test_what_a_task_has_to_do(
    kind: str, index: int, cluster: Any, is_lead: bool, is_server: bool, workers: int
) -> None:
    role = Role(kind, index, cluster)
    assert (role.is_lead, role.is_server, role.workers) == (is_lead, is_server, workers)
    assert role.name == f"{kind}-{index}"


def test_a_role_is_told_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    role = Role("worker", 1, SERVED)
    monkeypatch.setenv("TF_CONFIG", role.tf_config)
    assert roles.role() == role


@pytest.mark.parametrize("told", [None, "", "{}", '{"cluster": {}}', '{"environment": "cloud"}'])
def test_without_a_cluster_there_is_no_role(monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if told is not None:
        monkeypatch.setenv("TF_CONFIG", told)
    assert roles.role() is None


@pytest.mark.parametrize("told", ["{", "[1]", json.dumps({"cluster": IN_STEP}), '{"cluster": 3, "task": {}}'])
def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("TF_CONFIG", told)
    with pytest.raises(InputError, match="expected a JSON object with cluster and task") as raised:
        roles.role()
    assert told in raised.value.headline
