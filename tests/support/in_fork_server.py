"""Calls a function in a child of the nodes' server, so that the tests' own process need not import TFX."""

from __future__ import annotations

import importlib
import multiprocessing.connection
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_export_check

from pipeline.orchestration.local.processes import ChildProcess, start_server


def in_child(log: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the function returns; its error is raised here.

    Args:
      log: where the child's output goes.
      function: importable without TFX here.
      arguments: its arguments.
    """
    start_server()
    checking = forked_export_check.python()
    return result_of(ChildProcess(function.__name__, log, forked_export_check.call, checking, function, *arguments))


def main_of(module: str, *arguments: Any) -> Any:
    """Call `main` of a module of tests/support; for `in_child`, if its imports take seconds."""
    return importlib.import_module(module).main(*arguments)


def result_of(task: ChildProcess) -> Any:
    """Return what a task that has been started returns."""
    while not task.poll():
        multiprocessing.connection.wait(task.waitables)
    if task.reply is None:
        raise task.exit_error()
    if task.reply.error is not None:
        raise task.reply.error
    return task.reply.value
