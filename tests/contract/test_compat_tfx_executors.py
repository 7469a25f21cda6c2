"""The private parts of TFX's launcher and executors that components/compat/tfx relies on still exist."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as proto
from tfx.components.infra_validator import executor as validator
from tfx.components.trainer.executor import GenericExecutor
from tfx.components.tuner.executor import Executor as TunerExecutor
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.orchestration import metadata
from tfx.orchestration.portable import launcher, outputs_utils
from tfx.proto import infra_validator_pb2

from components.compat import tfx as compat
from components.compat.tfx.infra_validator import InfraValidatorExecutor, container_runner
from components.compat.tfx.launcher import _WORKING_DIR_INDEX, Metadata
from components.compat.tfx.trainer import TrainerExecutor

pytestmark = pytest.mark.both_lines

RENEW = "TFX has changed: adapt components/compat/tfx"


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_trainers_executor_makes_its_arguments_in_a_method_that_ours_overrides() -> None:
    expected = ["self", "input_dict", "output_dict", "exec_properties"]
    assert parameters(GenericExecutor._GetFnArgs) == parameters(TrainerExecutor._GetFnArgs) == expected, RENEW
    assert "self._GetFnArgs(" in inspect.getsource(GenericExecutor.Do), RENEW


def test_the_infra_validator_checks_a_server_in_a_method_that_ours_overrides() -> None:
    theirs, ours = validator.Executor._ValidateWithRetry, InfraValidatorExecutor._ValidateWithRetry
    assert parameters(theirs) == parameters(ours), RENEW
    assert "self._ValidateWithRetry(" in inspect.getsource(validator.Executor._Do), RENEW


def test_the_runner_of_a_server_is_chosen_by_the_spec() -> None:
    with pytest.raises(NotImplementedError, match="serving_platform"):
        container_runner("model", None, infra_validator_pb2.ServingSpec())
    assert "_create_model_server_runner(" in inspect.getsource(validator.Executor._ValidateOnce), RENEW


def test_an_executor_has_a_temporary_folder(tmp_path: Path) -> None:
    executor = TunerExecutor(BaseExecutor.Context(tmp_dir=str(tmp_path), unique_id="1"))
    assert Path(compat.temporary_dir(executor)).parent == tmp_path, RENEW


def test_the_launcher_starts_a_server_by_the_name_that_ours_replaces() -> None:
    source = inspect.getsource(launcher.Launcher.launch)
    assert "execution_watcher.ExecutionWatcher(" in source, RENEW
    for used in ("executor_watcher.address", "executor_watcher.start()", "executor_watcher.stop()"):
        assert used in source, RENEW
    assert launcher.execution_watcher.ExecutionWatcher.__module__ == "components.compat.tfx.launcher"


def test_the_launcher_registers_executions_in_a_method_that_ours_overrides() -> None:
    names = parameters(launcher.Launcher._register_or_reuse_execution)
    assert names == ["self", "metadata_handle", "contexts", "input_artifacts", "exec_properties"], RENEW
    prepare = inspect.getsource(launcher.Launcher._prepare_execution)
    assert "self._register_or_reuse_execution(" in prepare, RENEW
    assert "is_execution_needed" in prepare, RENEW
    assert "self._prepare_execution()" in inspect.getsource(launcher.Launcher.launch), RENEW
    assert "self._pipeline_node = pipeline_node" in inspect.getsource(launcher.Launcher.__init__), RENEW


def test_a_working_folder_is_numbered_by_a_property_of_the_execution() -> None:
    assert outputs_utils._STATEFUL_WORKING_DIR_INDEX == _WORKING_DIR_INDEX, RENEW


def test_a_handle_uses_the_connection_that_it_is_given(tmp_path: Path) -> None:
    config = proto.ConnectionConfig(
        sqlite=proto.SqliteMetadataSourceConfig(filename_uri=str(tmp_path / "metadata.db"), connection_mode=3)
    )
    store = MetadataStore(config)
    handle = Metadata(config, lambda: store)
    assert {"_store", "_users"} <= vars(metadata.Metadata(config)).keys(), RENEW
    with handle as entered:
        assert entered.store is store, RENEW
    with pytest.raises(RuntimeError, match="not in enter state"):
        _ = handle.store
