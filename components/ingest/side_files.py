"""Find the files of side tables and their columns, before a heavy library is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.data.compression import is_compressed
from components.ingest import input_files, spans
from components.ingest.config import DataConfig, Format, RowsConfig
from components.ingest.csv_header import check_header, read_header
from components.ingest.text_config import CsvConfig

if TYPE_CHECKING:
    # Not at run time, because the module imports NumPy and Arrow.
    from components.ingest.blocks import Reader


class SideFiles:
    """The files of a side table.

    Args:
      config: Config of the rows that the table is joined to.
      number: Index of the table in `data.join`.

    Raises:
      InputError: If there are no files of a supported format, their columns differ, or a column is missing.

    Attributes:
      field: Field of the config, for messages.
      join: Config of the join.
      csv: Format of text files.
      paths: Paths of the files, sorted.
      columns: Names of all columns of the files.
    """

    def __init__(self, config: RowsConfig, number: int) -> None:
        self.field, self.join = f"data.join[{number}]", config.join[number]
        self.csv = self.join.csv or config.csv.model_copy(update={"formats": {}})
        # The label does not matter here, but the section requires it.
        data = DataConfig(path=self.join.path, format=self.join.format, csv=self.csv, label="none")
        with input_files.errors_about(f"{self.field}.path"):
            self._check_path()
            self.format: Format = input_files.find(data).format
            if self.format not in ("csv", "parquet"):
                raise InputError(
                    f"data.path: expected CSV or Parquet files, received {self.format} files", "convert the files"
                )
            self.paths = [path for paths in input_files.files(data).values() for path in paths]
        self.columns = _read_columns(self.paths, self.format, self.csv)
        self._check_own_columns()

    def _check_path(self) -> None:
        if with_spans := [path for path in self.join.path if spans.has_specs(path)]:
            raise InputError(
                f"data.path: expected a path without {{SPAN}} or a date, received {with_spans[0]!r}",
                "name all files with a pattern such as side/*.csv; as_of selects the row of the right time",
            )

    @property
    def added(self) -> dict[str, str]:
        """Name of every column that the join adds → name of the column in the side table."""
        names = self.join.columns or [name for name in self.columns if name not in self.join.keys]
        return {f"{self.join.prefix}{name}": name for name in names}

    def _check_own_columns(self) -> None:
        """Check the columns of the side table that the config names."""
        join, formats = self.join, self.csv.formats
        fields = {"on": join.on.values(), "as_of": join.as_of.values(), "columns": join.columns, "csv.formats": formats}
        for field, side_names in fields.items():
            for name in side_names:
                self._check_column(field, name, self.columns, self.paths[0])
        if not self.added:
            raise InputError(
                f"{self.field}: expected columns to add, received {', '.join(self.columns)} in {self.paths[0]}",
                "remove the join, or name fewer columns in on",
            )

    def check_columns(self, names: Sequence[str]) -> None:
        """Check the columns of the data.

        Args:
          names: Columns of the data, including the columns that earlier joins add.

        Raises:
          InputError: If a column of the key is missing, or the join adds a column that exists already.
        """
        for field, pairs in (("on", self.join.on), ("as_of", self.join.as_of)):
            for name in pairs:
                self._check_column(field, name, names, "the data")
        if shared := [name for name in self.added if name in names]:
            raise InputError(
                f"{self.field}: expected columns that the data does not have, received {shared[0]!r}",
                f"set {self.field}.prefix, or name the columns to add in {self.field}.columns",
            )

    def _check_column(self, field: str, name: str, names: Sequence[str], table: str) -> None:
        if name not in names:
            raise InputError(
                f"{self.field}.{field}: expected a column of {table}, received {name!r}{did_you_mean(name, names)}",
                "name a column of both tables, or {column of the data: column of the side table}",
            )

    def create_reader(self) -> Reader:
        """Create a reader of the columns that the join needs."""
        selected = [*self.join.keys, *self.added.values()]
        if self.format == "parquet":
            from components.ingest import parquet_reader

            return parquet_reader.ParquetReader(self.paths[0], selected)
        from components.ingest import csv_reader

        return csv_reader.CsvReader(self.csv, self.paths[0], self.columns, selected)

    def estimate_memory(self) -> int:
        """Estimate the bytes of memory that the table needs, from the sizes of its files."""
        from components.data import file_io

        factor = _PARQUET if self.format == "parquet" else _TEXT
        sizes = {path: file_io.size(path) for path in self.paths}
        compressed = {path for path in self.paths if self.format == "csv" and is_compressed(path)}
        return sum(size * factor * (_COMPRESSION if path in compressed else 1) for path, size in sizes.items())


_PARQUET, _TEXT, _COMPRESSION = 6, 3, 5
"""Bytes of memory per byte of a file, and the factor for compressed text. A table is decoded, and its keys are held a
second time."""


def find(config: RowsConfig) -> list[SideFiles]:
    """Find the files of all side tables, in the order of the joins."""
    return [SideFiles(config, number) for number in range(len(config.join))]


def check(config: RowsConfig, names: Sequence[str], format_: Format) -> list[str]:
    """Check all joins against the columns of the data.

    Args:
      config: Config of the rows.
      names: Columns of the files of the data.
      format_: Format of the data.

    Returns:
      The columns that the joins add.

    Raises:
      InputError: If a join cannot be made.
    """
    if config.join and format_ not in ("csv", "parquet"):
        raise InputError(
            f"data.join: expected CSV or Parquet files at data.path, received {format_} files",
            "convert the data to Parquet, or remove data.join",
        )
    added: list[str] = []
    for files in find(config):
        files.check_columns([*names, *added])
        added += files.added
    return added


def _read_columns(paths: Sequence[str], format_: Format, csv: CsvConfig) -> list[str]:
    """Return the columns of the files, in the form of the config."""
    if format_ == "parquet":
        from components.ingest import parquet_reader

        return list(parquet_reader.columns(paths[0]))
    names = read_header(paths[0], csv).names
    for path in paths[1:]:
        check_header(path, read_header(path, csv), paths[0], names)
    return names
