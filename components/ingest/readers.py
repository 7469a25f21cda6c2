"""Finds the columns of the input, quickly enough to check them before a run, and the reader for its format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from components.errors import InputError
from components.ingest import input_files
from components.ingest.config import DataConfig, Format, IngestConfig
from components.ingest.csv_header import check_header, read_header
from components.names import did_you_mean

if TYPE_CHECKING:
    # At run time it would import NumPy and Arrow.
    from components.ingest.blocks import Reader


def columns(config: DataConfig) -> list[str] | None:
    """Returns the names of the selected columns; None if the rows come from a query.

    Raises:
      InputError: there is no input, it cannot be read, headers differ, or the config names an unknown column.
    """
    if config.bigquery:
        return None
    format_ = input_files.find(config).format
    paths = [path for of_pattern in input_files.files(config).values() for path in of_pattern]
    names = _columns(paths, format_, config)
    check_names(config, names, format_)
    return [name for name in names if not config.columns or name in config.columns]


def check_names(config: IngestConfig, names: Sequence[str], format_: Format) -> None:
    """Checks the column names in the config.

    Raises:
      InputError: a name is not among `names`, or the format does not support the setting.
    """
    if format_ in ("tfrecord", "images"):
        for field in ("columns",) if format_ == "images" else ("columns", "types"):
            if getattr(config, field):
                reason = "records are passed on as they are" if format_ == "tfrecord" else "images have three columns"
                raise InputError(f"data.{field} has no meaning with {format_} files: {reason}", "remove it")
    for field, named in (("columns", config.columns), ("types", config.types), ("split.columns", config.split.columns)):
        for column in named:
            if column not in names:
                raise InputError(
                    f"data.{field}: there is no column {column!r}{did_you_mean(column, names)}",
                    "name columns of the data",
                )
    for column in config.types:
        if format_ == "images" and column != "label":
            raise InputError(f"data.types: the column {column!r} of images is always bytes", "remove it")
    for column in config.split.columns:
        if config.columns and column not in config.columns:
            raise InputError(f"data.split.columns: {column!r} is not among data.columns", "add it there")


def reader(config: IngestConfig, paths: Sequence[str]) -> Reader:
    """Returns the reader for files of one format.

    Raises:
      InputError: the first file cannot be read, or the config names an unknown column.
    """
    if config.format == "parquet":
        from components.ingest import parquet_reader

        check_names(config, list(parquet_reader.columns(paths[0])), "parquet")
        return parquet_reader.ParquetReader(paths[0], config.columns)
    if config.format == "tfrecord":
        from components.ingest import example_reader

        check_names(config, example_reader.names(paths[0], config.tfrecord), "tfrecord")
        return example_reader.ExampleReader(config.tfrecord)
    if config.format == "images":
        from components.ingest import image_reader

        check_names(config, input_files.IMAGE_COLUMNS, "images")
        label = image_reader.label_type(paths, config.types.get("label"))
        return image_reader.ImageReader(label, config.images.max_megapixels)
    from components.ingest import csv_reader

    names = read_header(paths[0], config.csv).names
    check_names(config, names, "csv")
    return csv_reader.CsvReader(config.csv, paths[0], names, config.columns)


def _columns(paths: Sequence[str], format_: Format, config: DataConfig) -> list[str]:
    if format_ == "csv":
        names = read_header(paths[0], config.csv).names
        for path in paths[1:]:
            check_header(path, read_header(path, config.csv), paths[0], names)
        return names
    if format_ == "parquet":
        from components.ingest import parquet_reader

        return list(parquet_reader.columns(paths[0]))
    if format_ == "tfrecord":
        from components.ingest import example_reader

        return example_reader.names(paths[0], config.tfrecord)
    return list(input_files.IMAGE_COLUMNS)
