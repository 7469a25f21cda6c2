"""The command line: one module per command of `runner.py`."""

from __future__ import annotations

from pipeline.cli.main import main

__all__ = ["main"]
