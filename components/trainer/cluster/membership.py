"""The workers of an elastic cluster: the workers that are present, and the workers that the coordinator uses."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from components.compat.coordinator import WorkerGroup
from components.compat.grpc import TaskStatus
from components.models.sharding import Partitioner
from components.trainer.cluster.tf_config import Role
from components.trainer.cluster_task import RETRYABLE

_INTERVAL_SECONDS = 1.0
_ANSWER_SECONDS = 3.0
_CONNECT_SECONDS = 60.0
"""Time limit for connecting to workers and disconnecting from them."""
_SILENT_SECONDS = 120.0
"""How long a worker that takes steps may fail to answer. A local cluster kills a frozen worker earlier, which closes
its connections; then the other workers take its steps."""


class ElasticWorkers:
    """The workers that a coordinator uses; the constructor waits until all ps and enough workers are present.

    Args:
      role: Role of this process, the chief, whose cluster lists every worker that may join.
      least: Training waits while fewer workers are present.
      partitioner: Partitioner of the variables.
    """

    def __init__(self, role: Role, least: int, partitioner: Partitioner) -> None:
        self._least = least
        self._all_answered = time.monotonic()
        _await_all(role.cluster["ps"])
        self._membership = Membership(role.cluster["worker"])
        self.used = frozenset(self._await_least(lambda: True))
        """The numbers of the workers that take steps."""
        logging.info("training begins with %s", _format_names(self.used))
        with _exit_if_stuck():
            self.group = WorkerGroup(role.cluster, role.kind, self.used, partitioner)

    @property
    def all_lost(self) -> bool:
        """Whether all workers that take steps are lost."""
        return self.used <= self.group.find_lost_workers()

    def check(self) -> None:
        """End this process if a worker that takes steps does not answer, and its connections stay open.

        TensorFlow would wait for it forever. The chief is restarted from the last checkpoint, without this worker.
        """
        now = time.monotonic()
        if self.used <= self._membership.latest | self.group.find_lost_workers():
            self._all_answered = now
        elif now - self._all_answered > _SILENT_SECONDS:
            _exit()

    def update(self, may_wait: Callable[[], bool]) -> bool:
        """Connect to workers that have joined or come back, and disconnect workers that have left.

        It waits while there are too few workers. Call it only while no closure is running.

        Args:
          may_wait: Called once a second during the wait; the wait ends if it returns False.

        Returns:
          Whether there are enough workers; False only after `may_wait` has returned False.

        Raises:
          OpError: If a ps has failed.
        """
        self._all_answered = time.monotonic()
        if self._membership.latest == self.used and not self.used & self.group.find_lost_workers():
            return True
        while present := self._await_least(may_wait):
            try:
                with _exit_if_stuck():
                    self.group.replace(present)
            except tf.errors.OpError as error:
                if "/job:ps" in error.message:
                    raise
                logging.info("a worker was lost while the chief connected to it: %s", error.message)
                continue
            if present != self.used:
                joined, gone = _format_names(present - self.used), _format_names(self.used - present)
                logging.warning("workers: %s (joined: %s; left: %s)", _format_names(present), joined, gone)
            self.used = present
            return True
        return False

    def _await_least(self, may_wait: Callable[[], bool]) -> frozenset[int]:
        """Return the workers that are present, once there are enough; empty after `may_wait` has returned False."""
        logged = None
        while len(present := self._membership.ask()) < self._least:
            if not may_wait():
                return frozenset()
            if present != logged:
                logging.warning(
                    "waiting for workers: expected at least %d (training.strategy.min_workers), present: %s",
                    self._least,
                    _format_names(present),
                )
                logged = present
            time.sleep(_INTERVAL_SECONDS)
        return present


class Membership:
    """Asks the workers of a cluster for their status, continually.

    Args:
      addresses: Addresses of all workers that may join, by number.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._tasks = [TaskStatus(address) for address in addresses]
        self._pool = ThreadPoolExecutor(len(addresses), "membership")
        self.latest = self.ask()
        """Numbers of the workers that answered in the last round."""
        threading.Thread(target=self._follow, name="membership", daemon=True).start()

    def ask(self) -> frozenset[int]:
        """Return the numbers of the workers that answer now, within three seconds."""
        answers = self._pool.map(lambda task: task.answers(_ANSWER_SECONDS), self._tasks)
        return frozenset(number for number, answered in enumerate(answers) if answered)

    def _follow(self) -> None:
        # At the interpreter's exit, pools reject new work.
        with contextlib.suppress(RuntimeError):
            while True:
                time.sleep(_INTERVAL_SECONDS)
                self.latest = self.ask()


def _await_all(addresses: Sequence[str]) -> None:
    """Wait until all ps answer: connecting to them has a time limit, and machines may take minutes to start."""
    for number, address in enumerate(addresses):
        task = TaskStatus(address)
        while not task.answers(_ANSWER_SECONDS):
            logging.info("waiting for ps-%d", number)
            time.sleep(_INTERVAL_SECONDS)


@contextlib.contextmanager
def _exit_if_stuck() -> Iterator[None]:
    """End this process if the body takes too long, because TensorFlow waits forever for a worker that is lost then."""
    timer = threading.Timer(_CONNECT_SECONDS, _exit)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exit() -> None:
    logging.error("a worker does not answer and has not closed its connections: the chief exits, to be restarted")
    os._exit(RETRYABLE)


def _format_names(numbers: Collection[int]) -> str:
    return ", ".join(f"worker-{number}" for number in sorted(numbers)) or "none"
