"""Write tables of the user as Parquet files, which the pipeline reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from tfx_pipeline.command_line import CommandError


def write_parquet(rows: pd.DataFrame | pa.Table, path: Path, **added: pa.Array) -> None:
    """Write a table as a Parquet file.

    Args:
      rows: A DataFrame or an Arrow table with any types that Arrow can store; the index is not written.
      path: The file.
      added: Name → values of a column to append.

    Raises:
      CommandError: A column has values of several types, or two columns have the same name.
    """
    table = _to_arrow(rows)
    names = table.column_names
    if len({*names}) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise CommandError(
            f"expected a name of its own for each column, received several columns {', '.join(repeated)}\n"
            "  remedy: rename them"
        )
    for name, values in added.items():
        table = table.append_column(name, values)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def _to_arrow(rows: pd.DataFrame | pa.Table) -> pa.Table:
    if isinstance(rows, pa.Table):
        table = rows
    else:
        try:
            table = pa.Table.from_pandas(rows.rename(columns=str), preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise CommandError(
                f"expected values of one type in each column, received others: {error}\n"
                "  remedy: convert the column, for example with astype(str)"
            ) from error
    for number, field in enumerate(table.schema):
        # A categorical column is stored by its values.
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(field.type.value_type))
    return table


def to_json_rows(rows: pd.DataFrame | pa.Table) -> list[str]:
    """Return each row as a JSON object, column → value. Missing values are null, and truth values are 0 and 1."""
    return [
        json.dumps({name: _to_json(value) for name, value in row.items()}, default=str)
        for row in _to_arrow(rows).to_pylist()
    ]


def _to_json(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    # Only NaN differs from itself.
    return None if value != value else value
