"""The private parts of TFX in components.compat.tfx still exist in the installed versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.components.base.base_executor import BaseExecutor

from components.compat import tfx as compat

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
