"""The private parts of TFX in components.compat.tfx still exist in the installed versions."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.io import filesystem_registry
from tfx.orchestration.portable import cache_utils, data_types
from tfx.types import artifact_utils, standard_artifacts

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


def test_cache_of_a_launcher_with_copies_knows_urls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model, keys, stored = standard_artifacts.Model(), [], {"/copies/model/1"}
    model.uri = "/copies/model/1"
    model.set_string_custom_property("base", "/copies/model/0")

    def describe(artifact: Any) -> tuple[str, str]:
        return artifact.uri, artifact.get_string_custom_property("base")

    def prepare(self: Any) -> None:
        cache_utils.get_cache_context(metadata_handle=None, input_artifacts={"model": [model]})
        artifact_utils.verify_artifacts({"model": [model]})

    monkeypatch.setattr(launcher.launcher.Launcher, "__init__", lambda self, **_: None)
    monkeypatch.setattr(launcher.launcher.Launcher, "_prepare_execution", prepare)
    monkeypatch.setattr(
        cache_utils,
        "get_cache_context",
        lambda input_artifacts, **_: keys.append(describe(input_artifacts["model"][0])),
    )
    copies = SimpleNamespace(to_url=lambda path: path.replace("/copies", "s3://b"), exists=stored.__contains__)
    launcher.NodeLauncher(None, copies)._prepare_execution()
    stored.clear()
    with pytest.raises(RuntimeError, match="artifacts are missing: /copies/model/1"):
        launcher.NodeLauncher(None, copies)._prepare_execution()
    assert keys == [("s3://b/model/1", "s3://b/model/0")] * 2
    # A launcher without copies uses TFX's own functions, which look for a file.
    with pytest.raises(RuntimeError, match="Artifact uri /copies/model/1 is missing"):
        launcher.NodeLauncher(None)._prepare_execution()
    assert keys[2:] == [describe(model)] == [("/copies/model/1", "/copies/model/0")]


def test_launcher_of_tfx_still_calls_what_is_replaced() -> None:
    assert "self._run_executor(execution_info)" in inspect.getsource(launcher.launcher.Launcher.launch)
    prepare = inspect.getsource(launcher.launcher.Launcher._prepare_execution)
    assert "cache_utils.get_cache_context(" in prepare
    assert "cache_utils.get_cached_outputs(" in prepare
    assert "artifact_utils.verify_artifacts(" in inspect.getsource(cache_utils.get_cached_outputs)
