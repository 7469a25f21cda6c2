"""Tests of the computed placement of variables on a mesh, against tensors on devices and against closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer import placement
from components.trainer.config import TrainingConfig
from components.trainer.placement import Placement
from tests.support.programs import mesh_devices
from tests.support.servers.in_fork_server import in_child

INPUTS = Inputs({"x": Dense(3), "city": Ids(50, width=4), "shop": Ids(10**9, width=5)})


def place(rows: int = 10, **strategy: Any) -> Placement:
    training = TrainingConfig.model_validate({"strategy": {"kind": "mesh", **strategy}, "batch_size": rows})
    return placement.place(training, lambda: build(ModelConfig(kind="mlp", hidden=(8,)), INPUTS, 1))


def test_bytes_follow_from_the_shapes() -> None:
    placed = place(data=2, model=2)
    variables = {variable.name: variable for variable in placed.variables}
    divisions = {name: (variable.division, variable.bytes) for name, variable in variables.items()}
    assert divisions == {
        "embedding_4/rows": ("columns", (4 * 50 * 2, 4 * 50 * 2)),
        # The width of 5 is odd. A table of a billion rows does not need memory to be placed.
        "embedding_5/rows": ("rows", (4 * 5 * 10**9 // 2,) * 2),
        "hidden_0/kernel": ("columns", (4 * 12 * 4, 4 * 12 * 4)),
        "hidden_0/bias": ("whole", (4 * 8,)),
        "logits/kernel": ("whole", (4 * 8,)),
        "logits/bias": ("whole", (4,)),
    }
    # A gradient has a row of numbers and an ID for every row of half of the batch.
    assert variables["embedding_4/rows"].gradients == (5 * (4 * 2 + 8),) * 2
    assert variables["embedding_5/rows"].gradients == (5 * (4 * 5 + 8),) * 2
    first, second, third, fourth = placed.devices
    assert first.weights - second.weights == 4 * (8 + 8 + 1)
    assert (first.weights, first.moments) == (third.weights, 2 * first.weights)
    assert (second.weights, second.moments) == (fourth.weights, 2 * second.weights)
    assert "divided by rows among the devices 0, 1: embedding_5/rows" in placed.describe_variables()


def test_stages_have_separate_devices() -> None:
    placed = place(rows=12, data=2, model=2, place={"hidden_0": 1, "logits/*": 2}, micro_batches=3)
    devices = {variable.name: variable.devices for variable in placed.variables}
    assert devices == {
        "embedding_4/rows": (0, 1),
        "embedding_5/rows": (0, 1),
        "hidden_0/kernel": (2, 3),
        "hidden_0/bias": (2,),
        "logits/kernel": (4,),
        "logits/bias": (4,),
    }
    assert [device.device for device in placed.devices] == [str(number) for number in range(12)]
    weights = [device.weights for device in placed.devices]
    assert weights[2:6] == [4 * (12 * 4 + 8), 4 * 12 * 4, 4 * 9, 0]
    assert weights[:6] == weights[6:]


def test_rows_have_the_moments_of_different_variables() -> None:
    whole, divided = place(data=2), place(data=2, shard_optimizer=True)
    assert sum(device.moments for device in divided.devices) == whole.devices[0].moments
    assert min(device.moments for device in divided.devices) > 0
    assert [device.weights for device in divided.devices] == [device.weights for device in whole.devices]


def test_placement_is_written_and_read(tmp_path: Path) -> None:
    assert placement.read_devices(str(tmp_path)) == []
    placed = place(model=2)
    placement.write(str(tmp_path / "run"), placed)
    assert placement.read_devices(str(tmp_path / "run")) == list(placed.devices)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        ("wide_deep", {"data": 2, "model": 2}),
        ("wide_deep", {"model": 2, "place": {"hidden_1": 1, "wide": 1}, "micro_batches": 2}),
        ("cnn", {"data": 2, "model": 2, "shard_optimizer": True}),
    ],
    ids=["wide_deep", "stages", "cnn"],
)
def test_plan_has_the_bytes_of_the_tensors_on_each_device(tmp_path: Path, kind: str, strategy: dict[str, Any]) -> None:
    listed, sizes = in_child(tmp_path / "step.log", mesh_devices.bytes_of_step, kind, strategy)
    planned, measured = listed[:4], listed[4:]
    assert [memory["device"] for memory in measured] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    for memory, expected in zip(measured, planned, strict=True):
        assert {**memory, "device": expected["device"]} == expected
        actual = sizes[memory["device"]]
        assert (actual["weights"], actual["moments"]) == (memory["weights"], memory["moments"])
        # A device has the gradients of its range of rows only, and the plan counts all IDs of the batch.
        assert 0 < actual["gradients"] <= memory["gradients"]
        rows = 20 // strategy.get("data", 1)
        assert memory["gradients"] - actual["gradients"] <= (0 if kind == "cnn" else rows * 4 * (4 + 8))
