"""The command line: `runner.py --local` runs the pipeline, and every other verb is one module in here."""

from pipeline.commands.main import main

__all__ = ["main"]
