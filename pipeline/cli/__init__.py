"""The command line: `runner.py --local` runs the pipeline, and every other verb is one module in here."""

from __future__ import annotations

from pipeline.cli.main import main

__all__ = ["main"]
