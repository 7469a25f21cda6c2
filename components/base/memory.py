"""The memory that a process may use."""

from __future__ import annotations

from pathlib import Path

import psutil


def memory() -> tuple[int, int]:
    """Return the memory that this process may use, total and free, in bytes; a container's limit counts."""
    machine = psutil.virtual_memory()
    limit, used = _control_group("memory.max"), _control_group("memory.current")
    if limit is None or used is None:
        return machine.total, machine.available
    return min(machine.total, limit), min(machine.available, max(0, limit - used))


def _control_group(name: str) -> int | None:
    """Return a number of this container's control group; None if it is missing or `max`."""
    path = Path("/sys/fs/cgroup") / name
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
