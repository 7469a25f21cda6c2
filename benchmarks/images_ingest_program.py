"""Run a side of the benchmark of images: import, do the work and print the measurement.

python -m benchmarks.images_ingest_program SIDE INPUT OUTPUT

| side | input | what it does |
|---|---|---|
| `folders` | a folder for each class | ExampleGen's executor |
| `table` | a CSV file with the names of images | the same |
| `records` | a TFRecord file of encoded images | the same |
| `check` | a folder for each class | only reads and checks the images |
| `statistics` | the examples of `folders` | StatisticsGen's executor |
| `similarity` | a number of images | compares the thumbnails of a fifth of the images with all others |
| `search` | a number of images | the same on Beam's direct runner, in one worker, from the files of ingest |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import measure

_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "folders": {"format": "images"},
    "table": {"format": "csv", "images": {"path_column": "file"}},
    "records": {"format": "tfrecord", "images": {"encoded_columns": ["image"]}},
}
_MEGAPIXELS = 50
_THUMBNAIL = 9
_ROWS = 20_000
"""Images in a file of facts."""


def main(side: str, source: str, output: Path) -> None:
    """Do the work of a side, and print the measurement as one line of JSON."""
    from components.compat.tensorflow import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    prepare: dict[str, Callable[[], Callable[[], object]]] = {
        **{name: lambda: _ingest(source, output, _SOURCES[side]) for name in _SOURCES},
        "check": lambda: _check(Path(source)),
        "statistics": lambda: _statistics(source, output),
        "similarity": lambda: _similarity(int(source)),
        "search": lambda: _search(int(source), output),
    }
    measure.report(prepare[side]())


def _ingest(source: str, output: Path, section: Mapping[str, Any]) -> Callable[[], object]:
    from tfx.types.standard_artifacts import Examples

    from components.ingest import input_files
    from components.ingest.component import example_gen
    from components.ingest.config import DataConfig
    from components.ingest.executor import Executor

    config = DataConfig.model_validate({"path": source, "label": "label", **section})
    node = example_gen(config, input_files.find(config), "parquet")
    examples = Examples()
    examples.uri = str(output)
    return lambda: Executor(_context(output)).Do({}, {"examples": [examples]}, node.exec_properties)


def _statistics(source: str, output: Path) -> Callable[[], object]:
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types.standard_artifacts import Examples, ExampleStatistics

    from components.statistics.executor import Executor

    examples, statistics = Examples(), ExampleStatistics()
    examples.uri, statistics.uri = source, str(output)
    examples.split_names = '["train", "eval"]'
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_PARQUET)
    return lambda: Executor(_context(output)).Do({"examples": [examples]}, {"statistics": [statistics]}, {})


def _context(output: Path) -> Any:
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    from pipeline.authoring.config.runtime import RuntimeConfig
    from pipeline.orchestration.engines import beam_args

    options = beam_args(RuntimeConfig(beam_args=("--direct_num_workers=1",)))
    return BaseBeamExecutor.Context(beam_pipeline_args=options, tmp_dir=str(output / "tmp"), unique_id="1")


def _check(source: Path) -> Callable[[], object]:
    from components.ingest import image_check

    def work() -> None:
        for path in source.rglob("*.jpg"):
            result = image_check.read(str(path), _MEGAPIXELS)
            if isinstance(result, str):
                raise RuntimeError(f"{path}: {result}")

    return work


def _search(count: int, output: Path) -> Callable[[], object]:
    import apache_beam as beam
    import pyarrow as pa
    from apache_beam.options.pipeline_options import PipelineOptions

    from components.data import image_facts
    from components.data.examples import ParquetWriter
    from components.statistics import similarity_search

    names, thumbnails = _generate_thumbnails(count)
    border = count // 5
    (output / image_facts.FOLDER).mkdir(parents=True)
    for split, start, stop in (("eval", 0, border), ("train", border, count)):
        starts = range(start, stop, _ROWS)
        for number, first in enumerate(starts):
            rows = slice(first, min(first + _ROWS, stop))
            pixels = pa.array([thumbnail.tobytes() for thumbnail in thumbnails[rows]], pa.binary())
            sides = pa.array([64] * len(pixels))
            columns = {"name": names[rows], "thumbnail": pixels, "width": sides, "height": sides}
            path = output / image_facts.FOLDER / image_facts.file_name(split, number, len(starts))
            batch = pa.RecordBatch.from_arrays(list(columns.values()), [f"image.{field}" for field in columns])
            writer = ParquetWriter(str(path), batch.schema)
            writer.write(batch)
            writer.close()
    files = {("image", split): image_facts.files(str(output), split) for split in ("train", "eval")}
    options = PipelineOptions(["--runner=DirectRunner", "--direct_running_mode=in_memory"])

    def work() -> None:
        with beam.Pipeline(options=options) as pipeline:
            _ = pipeline | similarity_search.WriteNearDuplicates(files, "train", count, str(output))

    return work


def _generate_thumbnails(count: int) -> tuple[Any, Any]:
    """Return the names and the thumbnails of random images."""
    import numpy as np
    import pyarrow as pa

    thumbnails = np.random.default_rng(0).integers(0, 256, (count, _THUMBNAIL, _THUMBNAIL), np.uint8)
    return pa.array([str(number).encode() for number in range(count)]), thumbnails


def _similarity(count: int) -> Callable[[], object]:
    from components.statistics import image_similarity

    names, thumbnails = _generate_thumbnails(count)
    border = count // 5
    eval_images = image_similarity.Images(names[:border], thumbnails[:border])
    train = image_similarity.Images(names[border:], thumbnails[border:])
    return lambda: image_similarity.find(train, eval_images, "image", "eval")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
