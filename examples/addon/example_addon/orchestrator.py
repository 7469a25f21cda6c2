"""The orchestrator `script`: a shell script that runs the pipeline, for cron or a CI job."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any


def write(config: Any, arguments: tuple[str, ...], output: Path) -> Path:
    """Write the script.

    Args:
      config: The pipeline.
      arguments: Arguments of `runner.py` that select the pipeline.
      output: Path of the script.

    Returns:
      The script.
    """
    output.write_text(
        f"#!/bin/sh\n# {config.pipeline.name}\nexec python runner.py run --local {shlex.join(arguments)}\n"
    )
    return output
