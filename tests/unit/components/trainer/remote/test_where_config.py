"""Tests of `training.where`: required fields by kind, and the folders that tasks can see."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.trainer.config import TrainingConfig
from components.trainer.remote.config import WhereConfig

CLAIM = {"persistentVolumeClaim": {"claimName": "train"}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "vertex"}, "vertex requires a project and a region"),
        ({"kind": "jobset", "volumes": {"train": CLAIM}}, "expected absolute mount paths, received 'train'"),
        ({"kind": "jobset", "volumes": {"/train": {}}}, "/train: expected one source .* received none"),
        ({"kind": "jobset", "spot": True}, "spot: expected kind vertex, received jobset; remove spot"),
        (
            {"kind": "vertex", "project": "p", "region": "r", "roles": {"ps": {"shared_memory": "8Gi"}}},
            "shared_memory: expected kind jobset, trainjob or tfjob, received vertex; remove shared_memory",
        ),
        (
            {"kind": "vertex", "project": "p", "region": "r", "isolated": True},
            "isolated: expected kind jobset, trainjob or tfjob, received vertex; remove isolated",
        ),
        ({"kind": "jobset", "queue": "GPUs"}, "queue"),
    ],
)
def test_invalid_section_is_rejected(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WhereConfig.model_validate({"image": "i", **fields})


def test_folders_below_a_mount_path_are_visible_to_tasks() -> None:
    where = WhereConfig.model_validate({"kind": "jobset", "image": "i", "volumes": {"/mnt/train": CLAIM}})
    assert where.mounts("/mnt/train/out/taxi")
    assert not where.mounts("/mnt/trained")


def test_remote_job_with_a_tpu_is_rejected() -> None:
    with pytest.raises(ValidationError, match="a job does not support a TPU"):
        TrainingConfig.model_validate({"where": {"kind": "jobset", "image": "i"}, "strategy": {"kind": "tpu"}})


def test_elastic_trainjob_is_rejected() -> None:
    elastic = {"kind": "parameter_server", "workers": 1, "max_workers": 2, "ps": 1}
    with pytest.raises(ValidationError, match=r"expected jobset with strategy\.max_workers, received trainjob"):
        TrainingConfig.model_validate({"where": {"kind": "trainjob", "image": "i"}, "strategy": elastic})


def test_role_changes_only_the_fields_that_it_states() -> None:
    where = WhereConfig.model_validate(
        {
            "kind": "jobset",
            "image": "i",
            "resources": {"cpu": 4},
            "priority_class": "high",
            "roles": {"ps": {"resources": {"memory": "64Gi"}}},
        }
    )
    assert where.task("worker").resources == {"cpu": 4}
    assert where.task("ps").resources == {"memory": "64Gi"}
    assert where.task("ps").priority_class == where.task("chief").priority_class == "high"
