"""Run a side of the ingest benchmark: import, do the work and print the measurement.

python -m benchmarks.ingest_program SIDE INPUT OUTPUT [BEAM OPTIONS]

| side | input | what it does |
|---|---|---|
| `ours` | a CSV or a Parquet file | our ExampleGen's executor, which writes TFRecords |
| `ours-columns` | the same | our ExampleGen's executor, which writes Parquet |
| `stock-csv` | a CSV file | the executor of TFX's CsvExampleGen |
| `stock-parquet` | a Parquet file | TFX's Parquet executor |
| `read-csv` | a CSV file of taxi trips | pyarrow's reader alone, the types of the columns given, on one thread |
| `read-parquet` | a Parquet file | pyarrow's reader alone, on one thread |
| `gzip` | a folder of examples | the gzip writer alone, on the bytes of the examples |

The executors split the rows 2:1 and write the artifact Examples to OUTPUT. The other sides discard their results.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from benchmarks import measure

_BLOCK = 1 << 20
"""Bytes that the CSV reader and the gzip writer process at a time."""


def main(side: str, source: Path, output: Path, beam_args: list[str]) -> None:
    """Do the work of a side, and print the measurement as one line of JSON."""
    # These functions import and prepare before the measurement begins.
    prepare: dict[str, Callable[[], Callable[[], object]]] = {
        "ours": lambda: _ours(source, output, beam_args, "tfrecord"),
        "ours-columns": lambda: _ours(source, output, beam_args, "parquet"),
        "stock-csv": lambda: _stock(source, output, beam_args),
        "stock-parquet": lambda: _stock(source, output, beam_args),
        "read-csv": lambda: _read_csv(source),
        "read-parquet": lambda: _read_parquet(source),
        "gzip": lambda: _gzip(source),
    }
    measure.report(prepare[side]())


def _ours(
    source: Path, output: Path, beam_args: list[str], stored: Literal["parquet", "tfrecord"]
) -> Callable[[], object]:
    _set_environment()
    from components.ingest import input_files
    from components.ingest.component import example_gen
    from components.ingest.config import DataConfig
    from components.ingest.executor import Executor

    config = DataConfig.model_validate({"path": str(source), "format": source.suffix[1:], "label": "tips"})
    return _execution(Executor, example_gen(config, input_files.find(config), stored), output, beam_args)


def _stock(source: Path, output: Path, beam_args: list[str]) -> Callable[[], object]:
    _set_environment()
    from tfx.components.example_gen.component import FileBasedExampleGen
    from tfx.dsl.components.base import executor_spec
    from tfx.proto import example_gen_pb2

    if source.suffix == ".csv":
        from tfx.components.example_gen.csv_example_gen.executor import Executor
    else:
        from tfx.components.example_gen.custom_executors.parquet_executor import Executor
    # Without output_config, the executor writes train and eval in the ratio 2:1.
    node = FileBasedExampleGen(
        input_base=str(source.parent.absolute()),
        input_config=example_gen_pb2.Input(
            splits=[example_gen_pb2.Input.Split(name="single_split", pattern=source.name)]
        ),
        custom_executor_spec=executor_spec.BeamExecutorSpec(Executor),
    )
    return _execution(Executor, node, output, beam_args)


def _execution(executor: Any, node: Any, output: Path, beam_args: list[str]) -> Callable[[], object]:
    """Return the call of `Do` that TFX's launcher makes after its driver has resolved the input."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types.standard_artifacts import Examples

    from pipeline.authoring.config.runtime import RuntimeConfig
    from pipeline.orchestration.engines import beam_args as engine_args

    examples = Examples()
    examples.uri = str(output)
    options = engine_args(RuntimeConfig(beam_args=tuple(beam_args)))
    context = BaseBeamExecutor.Context(beam_pipeline_args=options, tmp_dir=str(output / "tmp"), unique_id="1")
    return lambda: executor(context).Do({}, {"examples": [examples]}, node.exec_properties)


def _read_csv(source: Path) -> Callable[[], object]:
    from pyarrow import csv

    from data.bootstrap import Trips
    from data.taxi import find_real_trips

    types = Trips(find_real_trips(), seed=0).schema

    def work() -> None:
        reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK)
        converting = csv.ConvertOptions(column_types=types, strings_can_be_null=True)
        with csv.open_csv(source, reading, convert_options=converting) as batches:
            for _ in batches:
                pass

    return work


def _read_parquet(source: Path) -> Callable[[], object]:
    from pyarrow import parquet

    def work() -> None:
        with parquet.ParquetFile(source) as file:
            for _ in file.iter_batches(use_threads=False):
                pass

    return work


def _gzip(source: Path) -> Callable[[], object]:
    import gzip

    from isal import isal_zlib

    # One stream per split, as in the examples, because gzip finds repetitions only within a stream.
    streams = [b"".join(gzip.decompress(path.read_bytes()) for path in files) for files in _splits(source)]

    def work() -> None:
        for stream in streams:
            writer = isal_zlib.compressobj(level=1, wbits=31)
            for at in range(0, len(stream), _BLOCK):
                writer.compress(memoryview(stream)[at : at + _BLOCK])
            writer.flush()

    return work


def _splits(examples: Path) -> list[list[Path]]:
    return [sorted(folder.glob("*.gz")) for folder in sorted(examples.glob("Split-*"))]


def _set_environment() -> None:
    """Set our nodes' environment variables in both sides, before TensorFlow is imported."""
    from components.compat.tensorflow import ENVIRONMENT

    os.environ.update(ENVIRONMENT)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
