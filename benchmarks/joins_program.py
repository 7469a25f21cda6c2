"""Run a side of the benchmark of joins: import, do the work and print the measurement.

python -m benchmarks.joins_program PROGRAM JOIN DATA OUTPUT

PROGRAM is `ours`, whose ExampleGen writes Parquet with side tables in memory, `disk`, the same with side tables on
disk, or `pandas`, which reads the tables, joins them and writes a Parquet file. JOIN is a name in JOINS, or `none`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measure

JOINS: dict[str, dict[str, Any]] = {
    "small": {"path": "small.parquet", "on": "zone"},
    "past": {"path": "past.parquet", "on": "station", "as_of": "time"},
    "large": {"path": "large.parquet", "on": "user"},
}
"""Name → join of the config, with the name of a file below DATA."""


def main(program: str, join: str, data: Path, output: Path) -> None:
    """Do the work of a side, and print the measurement as one line of JSON."""
    section = JOINS.get(join)
    measure.report(_pandas(data, section, output) if program == "pandas" else _ours(data, section, output, program))


def _pandas(data: Path, join: dict[str, Any] | None, output: Path) -> Callable[[], object]:
    import pandas as pd

    output.mkdir(parents=True)

    def work() -> None:
        rows = pd.read_parquet(data / "rows.parquet")
        if join is not None:
            side = pd.read_parquet(data / join["path"])
            if "as_of" in join:
                rows["order"] = range(len(rows))
                past = side.sort_values("time", kind="stable")
                joined = pd.merge_asof(rows.sort_values("time", kind="stable"), past, on="time", by=join["on"])
                rows = joined.sort_values("order").drop(columns="order")
            else:
                rows = rows.merge(side, on=join["on"], how="left")
        rows.to_parquet(output / "rows.parquet", compression="zstd", index=False)

    return work


def _ours(data: Path, join: dict[str, Any] | None, output: Path, program: str) -> Callable[[], object]:
    from benchmarks.ingest_program import _execution, _set_environment

    _set_environment()
    from components.ingest import input_files, spilled_join
    from components.ingest.component import example_gen
    from components.ingest.config import DataConfig
    from components.ingest.executor import Executor

    limit = 0 if program == "disk" else sys.maxsize
    spilled_join.find_limit = lambda: limit
    joins = [] if join is None else [{**join, "path": str(data / join["path"])}]
    config = DataConfig.model_validate({"path": str(data / "rows.parquet"), "label": "label", "join": joins})
    return _execution(Executor, example_gen(config, input_files.find(config), "parquet"), output, [])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
