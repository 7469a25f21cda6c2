"""The private parts of TFX and TFT in components.compat.tfx still exist in the installed versions."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_transform.saved import saved_transform_io_v2
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


def test_loader_of_a_transform_graph_keeps_the_loaded_objects_as_attributes() -> None:
    # That an export without them loses its tables is shown by the export check on real models.
    source = inspect.getsource(saved_transform_io_v2.SavedModelLoader._initialize)
    for name in ("_imported", "_wrapped_function"):
        assert f"self.{name} = " in source, (
            f"SavedModelLoader no longer keeps {name}: change compat.transform_resources"
        )
    loader = object.__new__(saved_transform_io_v2.SavedModelLoader)
    loader._imported = table = object()
    assert compat.transform_resources(loader)["_imported"] is table


def test_without_the_resources_a_transform_graph_cannot_be_saved(tmp_path: Path) -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    serve = tf.function(lambda city: {"id": table.lookup(city)}, input_signature=[tf.TensorSpec([None], tf.string)])
    with pytest.raises(AssertionError, match="untracked"):
        tf.saved_model.save(tf.Module(), str(tmp_path), signatures={"serving_default": serve})


def test_executor_keeps_its_context() -> None:
    context = BaseExecutor.Context(pipeline_run_id="run")
    message = "BaseExecutor no longer keeps its context in _context: change compat.tfx.executor_context"
    assert vars(Executor(context)).get("_context") is context, message
    assert compat.executor_context(Executor(context)) is context, message
    assert compat.executor_context(Executor()) is None
    for name in ("pipeline_node", "pipeline_info", "pipeline_run_id"):
        assert isinstance(getattr(BaseExecutor.Context, name, None), property), f"Context has no {name}"
