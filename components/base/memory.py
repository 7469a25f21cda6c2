"""The memory that a process may use."""

from __future__ import annotations

from pathlib import Path

import psutil


def memory() -> tuple[int, int]:
    """Return the total and the free memory for this process, in bytes. It respects the limit of a container."""
    machine = psutil.virtual_memory()
    limit, used = _control_group("memory.max"), _control_group("memory.current")
    if limit is None or used is None:
        return machine.total, machine.available
    return min(machine.total, limit), min(machine.available, max(0, limit - used))


def _control_group(name: str) -> int | None:
    """Return a number from a file of this container's control group. None if it does not exist or contains `max`."""
    path = Path("/sys/fs/cgroup") / name
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
