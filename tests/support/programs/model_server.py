"""Runs the model server; the kernel kills it when the process of the tests that started it ends, even by SIGKILL."""

from __future__ import annotations

import signal
import sys

from components.base.processes import signal_at_parents_death
from components.serving.server_process import load

if __name__ == "__main__":
    parent, *options = sys.argv[1:]
    signal_at_parents_death(signal.SIGKILL, int(parent))
    load()(*options)
