"""Calls a function in a child of the nodes' server, so that the tests' own process need not import TFX."""

from __future__ import annotations

import importlib
import multiprocessing.connection
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.orchestration.local.processes import NodeProcess, start_server
from tests.support.programs import forked_export_check


def in_child(log: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a child; return its result or raise its error here.

    Args:
      log: File for the child's output.
      function: importable without TFX here.
      arguments: its arguments.
    """
    start_server()
    checking = forked_export_check.python()
    return result_of(NodeProcess(function.__name__, log, forked_export_check.call, checking, function, *arguments))


def main_of(module: str, *arguments: Any) -> Any:
    """Call `main` of a module of tests/support/programs; with `in_child`, its slow imports happen in the child."""
    return importlib.import_module(f"tests.support.programs.{module}").main(*arguments)


def result_of(task: NodeProcess) -> Any:
    """Return the result of a started task."""
    while not task.poll():
        multiprocessing.connection.wait(task.waitables)
    if task.reply is None:
        raise task.exit_error()
    if task.reply.error is not None:
        raise task.reply.error
    return task.reply.value
