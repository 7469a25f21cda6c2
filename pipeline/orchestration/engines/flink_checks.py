"""Check a Flink cluster before a run, through its REST API."""

from __future__ import annotations

import time

from components.base.errors import InputError, MachineError
from pipeline.authoring.config.runtime import FlinkConfig
from pipeline.orchestration.engines.flink_rest import Flink

_NO_RESTARTS = ("none", "off", "disable")
_MAX_ATTEMPTS = 10
"""Maximum number of restarts by Flink, so that a lost job fails soon enough to be submitted again."""

_SLOT_SECONDS = 30.0
"""Time for task managers to register after they or their job manager have started."""
_POLL_SECONDS = 0.5


def check(section: FlinkConfig, address: str) -> None:
    """Check the number of Flink's slots, and how often Flink restarts a job.

    Args:
      section: Section `runtime.flink` of the config.
      address: host:port of the REST API.

    Raises:
      InputError: Flink restarts a job too often.
      MachineError: The API does not answer, or the cluster has too few slots.
    """
    flink = Flink(address)
    try:
        settings = flink.config()
        parallelism = section.parallelism or int(settings.get("parallelism.default", 1))
        slots = _wait_for_slots(flink, parallelism)
    except (OSError, ValueError, KeyError) as error:
        raise MachineError(
            f"engine flink: expected Flink's REST API at {address}, received {error}",
            "set runtime.flink.rest to the address of the job manager's web page",
        ) from error
    if slots < parallelism:
        raise MachineError(
            f"engine flink: expected {parallelism} slots (runtime.flink.parallelism), received {slots} in "
            f"{_SLOT_SECONDS:g} s",
            "start more task managers, increase taskmanager.numberOfTaskSlots, or set a lower parallelism",
        )
    strategy = settings.get("restart-strategy.type", settings.get("restart-strategy", "none"))
    attempts = int(settings.get("restart-strategy.fixed-delay.attempts", 1))
    is_bounded = strategy in _NO_RESTARTS or (strategy == "fixed-delay" and attempts <= _MAX_ATTEMPTS)
    if section.worker_cache_seconds and not is_bounded:
        received = f"{attempts:,} attempts" if strategy == "fixed-delay" else f"the strategy {strategy}"
        raise InputError(
            f"Flink's restart strategy: expected at most {_MAX_ATTEMPTS} attempts, received {received}: a restart "
            "fails as long as the lost Python worker is cached",
            "set restart-strategy.type: none in Flink's configuration (this run submits a lost job again), or "
            "runtime.flink.worker_cache_seconds=0",
        )


def _wait_for_slots(flink: Flink, expected: int) -> int:
    """Wait until the cluster has the expected number of slots or time is up; return the number of slots."""
    deadline = time.monotonic() + _SLOT_SECONDS
    while (slots := int(flink.get("/overview")["slots-total"])) < expected and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return slots
