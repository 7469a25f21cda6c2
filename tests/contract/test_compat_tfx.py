"""The private parts of TFX in components.compat.tfx still exist in the installed versions."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.io import filesystem_registry
from tfx.orchestration.portable import data_types

from components.compat import tfx as compat
from components.compat.tfx import file_systems, launcher
from components.data import object_files

pytestmark = pytest.mark.both_lines


class Executor(BaseExecutor):
    """Any executor."""

    def Do(self, *arguments: Any) -> None:  # noqa: N802 - TFX's name
        raise NotImplementedError


def test_executor_keeps_its_context_and_the_context_its_working_folder(tmp_path: Path) -> None:
    context = BaseExecutor.Context(stateful_working_dir=str(tmp_path))
    assert compat.stateful_working_dir(Executor(context)) == str(tmp_path), "BaseExecutor._context has changed"


def test_without_a_context_there_is_no_working_folder() -> None:
    assert compat.stateful_working_dir(Executor()) is None
    assert compat.stateful_working_dir(Executor(BaseExecutor.Context())) is None


def test_executor_keeps_its_context() -> None:
    context = BaseExecutor.Context(pipeline_run_id="run")
    message = "BaseExecutor no longer keeps its context in _context: change compat.tfx.executor_context"
    assert vars(Executor(context)).get("_context") is context, message
    assert compat.executor_context(Executor(context)) is context, message
    assert compat.executor_context(Executor()) is None
    for name in ("pipeline_node", "pipeline_info", "pipeline_run_id"):
        assert isinstance(getattr(BaseExecutor.Context, name, None), property), f"Context has no {name}"


def test_registered_file_system_replaces_that_of_tfx_for_its_schemes() -> None:
    from tfx.dsl.io import fileio

    class Files:
        SUPPORTED_SCHEMES = ("memory7://",)

        @staticmethod
        def exists(path: str) -> bool:
            return path == "memory7://a"

    file_systems.register(Files)
    assert (fileio.exists("memory7://a"), fileio.exists("memory7://b")) == (True, False)
    object_files.register()
    registry = filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY
    assert registry.get_filesystem_for_path("s3://bucket/a") is object_files.ObjectFiles
    assert registry.get_filesystem_for_path("gs://bucket/a") is not object_files.ObjectFiles


def test_launcher_copies_inputs_before_and_outputs_after_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(launcher.launcher.Launcher, "__init__", lambda self, **_: None)
    monkeypatch.setattr(launcher.launcher.Launcher, "_run_executor", lambda self, info: calls.append("run") or "output")
    copies = SimpleNamespace(
        download=lambda path: calls.append(f"download {path}"), upload=lambda path: calls.append(f"upload {path}")
    )
    info = data_types.ExecutionInfo(
        input_dict={"examples": [SimpleNamespace(uri="/a"), SimpleNamespace(uri="/b")]},
        output_dict={"model": [SimpleNamespace(uri="/c")]},
    )
    assert launcher.NodeLauncher(None, copies)._run_executor(info) == "output"
    assert calls == ["download /a", "download /b", "run", "upload /c"]
    del calls[:]
    assert launcher.NodeLauncher(None)._run_executor(info) == "output"
    assert calls == ["run"]


def test_launcher_of_tfx_still_runs_the_executor_in_a_private_method() -> None:
    assert "self._run_executor(execution_info)" in inspect.getsource(launcher.launcher.Launcher.launch)
