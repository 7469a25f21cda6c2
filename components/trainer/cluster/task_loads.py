"""The load of the tasks of a local cluster: measured while they run, as curves of TensorBoard, and in total."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

from components.results.task_load import TaskLoad

_CURVE_SECONDS = 5.0
"""Minimum time between two points of a curve."""
_MB = 1e6


class TaskLoads:
    """Collects the loads of tasks, and writes their curves.

    Args:
      folder: Local folder of the curves, with a subfolder per task. If None, curves are not written.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._usage: dict[str, _Usage] = {}
        self._variables: Mapping[str, int] = {}
        self._written = time.monotonic()

    def start(self, task: str) -> None:
        """Begin to measure a new process of a task."""
        self._find(task).start()

    def measure(self, task: str, process: int) -> None:
        """Read memory and CPU time of the running process of a task."""
        self._find(task).measure(process)

    def update_traffic(self, task: str, sent_and_received: Sequence[int]) -> None:
        """Set the bytes that the process of a task has sent and received so far."""
        self._find(task).traffic = sent_and_received[0], sent_and_received[1]

    def update_variables(self, bytes_by_task: Mapping[str, int]) -> None:
        """Set the bytes of the variables of each ps."""
        self._variables = bytes_by_task

    def update_steps(self, steps_by_task: Mapping[str, int]) -> None:
        """Set the number of steps that tasks have taken so far."""
        for task, steps in steps_by_task.items():
            self._find(task).steps = steps

    def write_curves(self, step: int, is_last: bool = False) -> None:
        """Write a point of every curve, unless there is a recent one.

        Args:
          step: The lead's step.
          is_last: Whether to write the point at any rate.
        """
        now = time.monotonic()
        seconds = now - self._written
        if self._folder is None or not step or (seconds < _CURVE_SECONDS and not is_last):
            return
        self._written = now
        for task, usage in self._usage.items():
            values = usage.rates(seconds) | {"task/peak_memory_mb": usage.peak_bytes / _MB}
            if task in self._variables:
                values["task/variables_mb"] = self._variables[task] / _MB
            usage.write(self._folder / task, step, values)

    def list_loads(self) -> tuple[TaskLoad, ...]:
        """Return the load of every task, sorted by name."""
        return tuple(
            TaskLoad(
                task, usage.peak_bytes, round(usage.cpu_seconds, 2), *usage.total_traffic, self._variables.get(task, 0)
            )
            for task, usage in sorted(self._usage.items())
        )

    def find_peak_mb(self, kind: str) -> int:
        """Return the maximum memory of tasks of a kind, in MB; 0 if there are none."""
        peaks = (usage.peak_bytes for task, usage in self._usage.items() if task.startswith(f"{kind}-"))
        return max(peaks, default=0) // 1_000_000

    def _find(self, task: str) -> _Usage:
        return self._usage.setdefault(task, _Usage())


@dataclass
class _Usage:
    """What a task has used so far, over its restarts.

    Attributes:
      peak_bytes: Maximum resident memory of its processes.
      steps: Number of steps that it has taken, as counted by its last process or by the chief.
      traffic: Bytes that its last process has sent and received.
    """

    peak_bytes: int = 0
    steps: int = 0
    traffic: tuple[int, int] = (0, 0)
    _cpu_seconds: float = 0.0
    _earlier_cpu_seconds: float = 0.0
    _earlier_traffic: tuple[int, int] = (0, 0)
    _last: dict[str, float] = field(default_factory=dict)
    _writer: tf.io.TFRecordWriter | None = None

    @property
    def cpu_seconds(self) -> float:
        """CPU-seconds of all its processes."""
        return self._earlier_cpu_seconds + self._cpu_seconds

    @property
    def total_traffic(self) -> tuple[int, int]:
        """Bytes that all its processes have sent and received."""
        return self.traffic[0] + self._earlier_traffic[0], self.traffic[1] + self._earlier_traffic[1]

    def start(self) -> None:
        self._earlier_cpu_seconds, self._earlier_traffic = self.cpu_seconds, self.total_traffic
        self._cpu_seconds, self.traffic = 0.0, (0, 0)

    def measure(self, process: int) -> None:
        try:
            times = psutil.Process(process).cpu_times()
            status = Path(f"/proc/{process}/status").read_text()
        except (psutil.NoSuchProcess, OSError):
            return
        self._cpu_seconds = times.user + times.system
        # The kernel's own maximum, since the fork of the process; a process that has ended does not have this line.
        if peak := next((line for line in status.splitlines() if line.startswith("VmHWM:")), None):
            self.peak_bytes = max(self.peak_bytes, int(peak.split()[1]) << 10)

    def rates(self, seconds: float) -> dict[str, float]:
        """Return curve → growth per second since the last call."""
        sent, received = self.total_traffic
        counts = {
            "task/cpu_cores": self.cpu_seconds,
            "task/sent_mb_per_second": sent / _MB,
            "task/received_mb_per_second": received / _MB,
        }
        if self.steps:
            counts["task/steps_per_second"] = self.steps
        # A count of steps begins again when the process that counts them is restarted.
        rates = {name: max(0.0, count - self._last.get(name, 0.0)) / seconds for name, count in counts.items()}
        self._last = counts
        return rates

    def write(self, folder: Path, step: int, values: Mapping[str, float]) -> None:
        """Write one point per curve.

        TensorFlow's summary writer would start threads, and this process must not have any when it forks tasks.
        """
        if self._writer is None:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = tf.io.TFRecordWriter(str(folder / f"events.out.tfevents.{time.time_ns()}"))
            first = event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2")
            self._writer.write(first.SerializeToString())
        event = event_pb2.Event(wall_time=time.time(), step=step)
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.write(event.SerializeToString())
        self._writer.flush()
