"""Approve a model, and kill this process at one of the steps of the approval.

python killed_approval.py STEP ARGUMENT…; the arguments are those of `runner.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from components.pusher import local_folder, publish
from pipeline.cli import main
from pipeline.core.metadata import approvals


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


STEPS = {
    # The files are copied, and the manifest is not written.
    "manifest": lambda: setattr(local_folder.version_manifest, "write", die),
    # The version is complete under its temporary name.
    "rename": lambda: setattr(Path, "rename", die),
    # The version is visible, and has no stage.
    "stage": lambda: setattr(publish, "_assign_stage", die),
    # The version is stable, and ML Metadata does not know it.
    "record": lambda: setattr(approvals, "record", die),
}

if __name__ == "__main__":
    STEPS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
