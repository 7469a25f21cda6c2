"""Examples artifacts from tables in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import tensorflow as tf
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from components.data import example_encoder
from components.data.examples import Format, ParquetWriter, to_lists


def stored(folder: Path, form: Format, tables: dict[str, pa.RecordBatch]) -> standard_artifacts.Examples:
    """Return an artifact with a split for each table; columns are sorted by name, as ExampleGen writes them."""
    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    artifact.split_names = json.dumps(list(tables))
    parquet = form == "parquet"
    payload = example_gen_pb2.FORMAT_PARQUET if parquet else example_gen_pb2.FORMAT_TF_EXAMPLE
    examples_utils.set_payload_format(artifact, payload)
    for split, table in tables.items():
        (folder / f"Split-{split}").mkdir(parents=True)
        path = str(folder / f"Split-{split}/data{'.parquet' if parquet else '.gz'}")
        if parquet:
            columns = dict(zip(table.schema.names, table.columns, strict=True))
            batch = to_lists(pa.RecordBatch.from_pydict(dict(sorted(columns.items()))))
            writer = ParquetWriter(path, batch.schema)
            writer.write(batch)
            writer.close()
        else:
            with tf.io.TFRecordWriter(path, "GZIP") as file:
                for record in example_encoder.encode(table).to_pylist():
                    file.write(record)
    return artifact
