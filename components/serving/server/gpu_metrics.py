"""Utilisation and memory of the machine's NVIDIA GPUs for Prometheus, read by the driver's library NVML.

The functions and structures are those of https://docs.nvidia.com/deploy/nvml-api/: every function returns 0 on success,
`nvmlUtilization_t` consists of two unsigned integers, and `nvmlMemory_t` of three unsigned 64-bit integers.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

LIBRARY = "libnvidia-ml.so.1"
"""Library that NVIDIA's driver installs."""


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def register_gpus(registry: CollectorRegistry, library: str = LIBRARY) -> None:
    """Add the metrics of the GPUs to a registry; without the driver, do nothing.

    Args:
      registry: Registry of the server.
      library: Name or path of NVML.
    """
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return
    if code := nvml.nvmlInit_v2():
        logging.warning("metrics of GPUs are missing: expected nvmlInit to return 0, received %d", code)
        return
    registry.register(_Gpus(nvml))


class _Gpus(Collector):
    """Reads all GPUs of the machine whenever Prometheus asks.

    A value that a GPU does not support, such as the utilisation of a GPU in MIG mode, is left out.

    Args:
      nvml: The loaded library.
    """

    def __init__(self, nvml: ctypes.CDLL) -> None:
        self._nvml = nvml

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics; the label `gpu` is the number that NVML and nvidia-smi show."""
        text = "Share of the last sample period in which a kernel ran."
        utilisation = GaugeMetricFamily("gpu_utilization_ratio", text, labels=["gpu"])
        used = GaugeMetricFamily("gpu_memory_used_bytes", "Memory in use, of all processes.", labels=["gpu"])
        total = GaugeMetricFamily("gpu_memory_total_bytes", "Memory of the GPU.", labels=["gpu"])
        for number in range(self._read("nvmlDeviceGetCount_v2", ctypes.c_uint()) or 0):
            handle = ctypes.c_void_p()
            if self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)):
                continue
            rates = self._read("nvmlDeviceGetUtilizationRates", _Utilisation(), handle)
            memory = self._read("nvmlDeviceGetMemoryInfo", _Memory(), handle)
            if rates is not None:
                utilisation.add_metric([str(number)], rates.gpu / 100)
            if memory is not None:
                used.add_metric([str(number)], memory.used)
                total.add_metric([str(number)], memory.total)
        yield from (utilisation, used, total)

    def _read(self, function: str, result: Any, *arguments: Any) -> Any:
        """Call a function that writes its result to its last argument; return None if it fails."""
        if cast(int, getattr(self._nvml, function)(*arguments, ctypes.byref(result))):
            return None
        return result.value if isinstance(result, ctypes.c_uint) else result
