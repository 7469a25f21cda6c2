"""Checks of a Flink cluster before a run, by its REST API."""

from __future__ import annotations

import time

from components.base.errors import InputError, MachineError
from pipeline.authoring.config.runtime import FlinkConfig
from pipeline.orchestration.engines.flink_rest import Flink

_NO_RESTARTS = ("none", "off", "disable")
_MOST_ATTEMPTS = 10
"""Restarts by Flink itself after which a job may still be submitted again in good time."""

_SLOT_SECONDS = 30.0
"""How long task managers may take to register that have just started, or whose job manager has."""
_POLL_SECONDS = 0.5


def check(section: FlinkConfig, address: str) -> None:
    """Check Flink's slots, and its own restarts of a job.

    Args:
      section: of the config.
      address: host:port of the REST API.

    Raises:
      InputError: Flink restarts a job too often.
      MachineError: the API does not answer, or there are too few slots.
    """
    flink = Flink(address)
    try:
        settings = flink.config()
        parallelism = section.parallelism or int(settings.get("parallelism.default", 1))
        slots = _slots(flink, parallelism)
    except (OSError, ValueError, KeyError) as error:
        raise MachineError(
            f"engine flink: expected Flink's REST API at {address}, received {error}",
            "set runtime.flink.rest to the address of the job manager's web page",
        ) from error
    if slots < parallelism:
        raise MachineError(
            f"engine flink: expected {parallelism} slots (runtime.flink.parallelism), received {slots} in "
            f"{_SLOT_SECONDS:g} s",
            "start more task managers, give each more taskmanager.numberOfTaskSlots, or set a lower parallelism",
        )
    strategy = settings.get("restart-strategy.type", settings.get("restart-strategy", "none"))
    attempts = int(settings.get("restart-strategy.fixed-delay.attempts", 1))
    is_bounded = strategy in _NO_RESTARTS or (strategy == "fixed-delay" and attempts <= _MOST_ATTEMPTS)
    if section.worker_cache_seconds and not is_bounded:
        received = f"{attempts:,} attempts" if strategy == "fixed-delay" else f"the strategy {strategy}"
        raise InputError(
            f"Flink's restart strategy: expected at most {_MOST_ATTEMPTS} attempts, received {received}: each fails as "
            "long as the Python worker that was lost is cached",
            "set restart-strategy.type: none in Flink's configuration (this run submits a lost job again), or "
            "runtime.flink.worker_cache_seconds=0",
        )


def _slots(flink: Flink, wanted: int) -> int:
    """Return the number of slots, of which the cluster may have fewer for a while."""
    deadline = time.monotonic() + _SLOT_SECONDS
    while (slots := int(flink.get("/overview")["slots-total"])) < wanted and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return slots
