"""Private parts of TFX. Subclasses of TFX's classes are in separate modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_executor import BaseExecutor


def executor_context(executor: BaseExecutor) -> BaseExecutor.Context | None:
    """Return the context of an executor: run ID, pipeline, node and folders.

    BaseExecutor keeps it in a private attribute without an accessor. Checked with TFX 1.16 and 1.21.

    Args:
      executor: A running executor.

    Returns:
      The context. None if TFX's launcher did not start the executor, as in a unit test.
    """
    return executor._context


def stateful_working_dir(executor: BaseExecutor) -> str | None:
    """Return the URI of the folder that TFX keeps after a failed attempt, for the next attempt in the same run.

    Args:
      executor: A running executor.

    Returns:
      The URI. None if TFX's launcher did not start the executor.
    """
    context = executor_context(executor)
    return str(context.stateful_working_dir) if context and context.stateful_working_dir else None


def temporary_dir(executor: BaseExecutor) -> str:
    """Return the URI of the folder that TFX deletes after this attempt.

    Hook: the private method `_get_tmp_dir`.

    Args:
      executor: A running executor.
    """
    return str(executor._get_tmp_dir())
