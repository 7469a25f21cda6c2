"""Load a CSV file into LightGBM's bins, for benchmarks/columns.py; runs in the environment `quality`.

python columns_lightgbm.py TABLE LABEL

Print a line with the CPU-seconds and seconds without imports, and the peak memory.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path


def main() -> None:
    """Load the table."""
    import lightgbm

    path, label = sys.argv[1:]
    wall, cpu = time.perf_counter(), time.process_time()
    parameters = {"header": True, "label_column": f"name:{label}", "verbosity": -1, "num_threads": os.cpu_count() or 1}
    lightgbm.Dataset(path, params=parameters).construct()
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    figures = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    sys.stdout.write(json.dumps({**figures, "peak_mb": int(peak[1]) / 1024 if peak else 0.0}) + "\n")


if __name__ == "__main__":
    main()
