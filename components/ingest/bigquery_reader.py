"""Read the rows of a BigQuery query with Beam's reader, as blocks of columns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import add
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.gcp.bigquery import ReadFromBigQuery

from components.base.errors import InputError
from components.data.arrow_columns import is_nested
from components.ingest.blocks import Block, BlockSource, FileRange, ReaderProperties
from components.ingest.config import BigqueryConfig, IngestConfig
from components.ingest.readers import check_names

QUERY = "the query's result"
"""Stands for the path in messages about bad rows. Rows of a query are unordered, so rows are numbered in a batch."""
PROPERTIES = ReaderProperties()
_ROWS = 1 << 13


def blocks(pipeline: beam.Pipeline, query: str, config: IngestConfig, settings: BigqueryConfig) -> beam.PCollection:
    """Read the rows of a query as a collection of blocks, each of up to 8,192 rows of typed columns.

    Args:
      pipeline: The Beam pipeline.
      query: GoogleSQL with the span filled in.
      config: Config of the ingest, which selects the columns.
      settings: Project and temporary folder of the query.
    """
    rows = pipeline | "Query" >> ReadFromBigQuery(
        query=query, use_standard_sql=True, project=settings.project, gcs_location=settings.temp_location
    )
    batched = rows | "Batch" >> beam.BatchElements(min_batch_size=_ROWS, max_batch_size=_ROWS)
    # Reshuffle materializes the rows, so that the query runs once although both passes read the rows.
    return batched | "Columns" >> beam.Map(to_block, config) | "Materialize" >> beam.Reshuffle()


def to_block(rows: Iterable[dict[str, Any]], config: IngestConfig) -> Block:
    """Convert rows to typed columns.

    Raises:
      InputError: If a column is a record or has values of several types, or the config names an unknown column.
    """
    row_list = list(rows)
    check_names(config, list(row_list[0]), "bigquery")
    names = [name for name in row_list[0] if not config.columns or name in config.columns]
    arrays = [_to_array(name, [row.get(name) for row in row_list]) for name in names]
    block = pa.RecordBatch.from_arrays(arrays, names)
    return Block(block, (BlockSource(FileRange(QUERY), len(row_list), partial(add, 1)),))


def _to_array(name: str, values: list[Any]) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the column {name} of the query: expected values of one type, received others: {reason}",
            "CAST it in the query",
        ) from error
    if is_nested(array.type):
        raise InputError(
            f"the column {name} of the query is a record ({array.type}): expected values, or arrays of them",
            "SELECT its fields one by one in the query",
        )
    return array
