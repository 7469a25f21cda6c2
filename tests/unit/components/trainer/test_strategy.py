"""Tests of the batch size per replica, AutoGraph, TPUs that do not answer, and replicas that restore other steps."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tensorflow.python.autograph.core import config as autograph
from tensorflow.python.autograph.impl import conversion

from components.base.errors import InputError
from components.models.layers import Table
from components.trainer.config import TrainingConfig
from components.trainer.input_pipeline import InputPipeline
from components.trainer.strategy import distribute, prepare
from tests.support.servers.in_fork_server import in_child, main_of


def test_synchronous_replicas_divide_the_batch() -> None:
    assert TrainingConfig(batch_size=256).replica_rows(1) == 256
    config = TrainingConfig.model_validate({"batch_size": 256, "strategy": {"kind": "mirrored"}})
    assert config.replica_rows(4) == 64


def test_worker_of_a_parameter_server_processes_the_complete_batch() -> None:
    config = TrainingConfig.model_validate({"batch_size": 250, "strategy": {"kind": "parameter_server", "workers": 4}})
    assert config.replica_rows(1) == 250


def test_batch_size_that_is_not_a_multiple_of_the_replicas_is_an_error() -> None:
    config = TrainingConfig.model_validate({"batch_size": 250, "strategy": {"kind": "mirrored"}})
    with pytest.raises(InputError, match=r"training.batch_size: expected a multiple .* 4, received 250") as raised:
        config.replica_rows(4)
    assert raised.value.remedy == "choose a multiple of 4"


def test_autograph_skips_functions_of_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule for rule in autograph.CONVERSION_RULES if "components" not in str(rule)]
    monkeypatch.setattr(autograph, "CONVERSION_RULES", (*rules,))
    functions = (InputPipeline._gather, Table.call)
    assert not any(map(conversion.is_allowlisted, functions))
    prepare(None, TrainingConfig())
    assert all(map(conversion.is_allowlisted, functions))
    assert not conversion.is_allowlisted(test_autograph_skips_functions_of_this_project)


def test_tpu_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainingConfig.model_validate({"strategy": {"kind": "tpu"}})
    with socket.socket() as closed:
        # A socket that is bound but does not listen refuses connections.
        closed.bind(("127.0.0.1", 0))
        name = f"grpc://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("TPU_NAME", name)
        with pytest.raises(InputError, match=rf"received no answer \(TPU_NAME: {name}\)") as raised:
            distribute(config, None)
    assert raised.value.remedy == "run on a TPU VM, or name the TPU in TPU_NAME; mirrored trains on GPUs"


@pytest.mark.both_lines
def test_replicas_that_restored_different_steps_are_restarted(tmp_path: Path) -> None:
    restarts = in_child(tmp_path / "test.log", main_of, "restoring_replicas", tmp_path, (20, 10))
    assert restarts == 1
    logs = "".join(log.read_text() for log in (tmp_path / "logs").iterdir())
    assert "and another replica another step" in logs
