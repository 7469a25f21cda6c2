"""Rows of a BigQuery query, through Beam's own reader, as blocks of columns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import add
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.gcp.bigquery import ReadFromBigQuery

from components.errors import InputError
from components.ingest.columns import is_nested
from components.ingest.config import BigqueryConfig, IngestConfig
from components.ingest.inputs import check_names
from components.ingest.rows import Block, Piece, Segment, Traits

QUERY = "the query's result"
"""What stands for the file where a bad row is named; its rows have no order, so their numbers are those of a batch."""
TRAITS = Traits()
_ROWS = 1 << 13


def blocks(pipeline: beam.Pipeline, query: str, config: IngestConfig, where: BigqueryConfig) -> beam.PCollection:
    """The rows of a query as a collection of blocks, each of up to 8,192 rows of typed columns.

    Args:
      pipeline: the pipeline.
      query: GoogleSQL, the span filled in.
      config: names the columns to take.
      where: where the query runs.
    """
    rows = pipeline | "Query" >> ReadFromBigQuery(
        query=query, use_standard_sql=True, project=where.project, gcs_location=where.temp_location
    )
    batched = rows | "Batch" >> beam.BatchElements(min_batch_size=_ROWS, max_batch_size=_ROWS)
    # Both passes take what is written down here; neither asks BigQuery again.
    return batched | "Columns" >> beam.Map(to_block, config) | "Keep" >> beam.Reshuffle()


def to_block(rows: Iterable[dict[str, Any]], config: IngestConfig) -> Block:
    """Rows as typed columns.

    Raises:
      InputError: a column is a record, has values of several types, or is named in the config and not there.
    """
    listed = list(rows)
    check_names(config, list(listed[0]), "bigquery")
    names = [name for name in listed[0] if not config.columns or name in config.columns]
    arrays = [_array(name, [row.get(name) for row in listed]) for name in names]
    block = pa.RecordBatch.from_arrays(arrays, names)
    return Block(block, (Segment(Piece(QUERY), len(listed), partial(add, 1)),))


def _array(name: str, values: list[Any]) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        told = str(error).splitlines()[0]
        raise InputError(
            f"the column {name} of the query: expected values of one type, received others: {told}",
            "CAST it in the query",
        ) from error
    if is_nested(array.type):
        raise InputError(
            f"the column {name} of the query is a record ({array.type}): expected values, or arrays of them",
            "SELECT its fields one by one in the query",
        )
    return array
