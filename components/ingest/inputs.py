"""What the input is: its columns, told in a moment before a run, and the reader for its format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from components.errors import InputError
from components.ingest import source
from components.ingest.config import DataConfig, Format, IngestConfig
from components.ingest.header import expect_header, header
from components.names import did_you_mean

if TYPE_CHECKING:
    # At run time it would bring NumPy and Arrow along.
    from components.ingest.rows import Reader


def columns(config: DataConfig) -> list[str] | None:
    """The names of the columns, as all files of the input agree on them; None if only the query can tell.

    Raises:
      InputError: there is no input, it cannot be read, headers differ, or the config names an unknown column.
    """
    if config.bigquery:
        return None
    found = source.find(config)
    paths = [path for of_pattern in source.files(config).values() for path in of_pattern]
    names = _columns(paths, found.format, config)
    check_names(config, names, found.format)
    return [name for name in names if not config.columns or name in config.columns]


def check_names(config: IngestConfig, names: Sequence[str], format_: Format) -> None:
    """Refuses columns in the config that are not there, and what a format cannot do.

    Raises:
      InputError: see above.
    """
    if format_ in ("tfrecord", "images"):
        for field in ("columns",) if format_ == "images" else ("columns", "types"):
            if getattr(config, field):
                told = "records are passed on as they are" if format_ == "tfrecord" else "images have three columns"
                raise InputError(f"data.{field} has no meaning with {format_} files: {told}", "leave it out")
    for field, named in (("columns", config.columns), ("types", config.types), ("split.columns", config.split.columns)):
        for column in named:
            if column not in names:
                raise InputError(
                    f"data.{field}: there is no column {column!r}{did_you_mean(column, names)}",
                    "name columns of the data",
                )
    for column in config.types:
        if format_ == "images" and column != "label":
            raise InputError(f"data.types: the column {column!r} of images is always bytes", "leave it out")
    for column in config.split.columns:
        if config.columns and column not in config.columns:
            raise InputError(f"data.split.columns: {column!r} is not among data.columns", "add it there")


def reader(config: IngestConfig, paths: Sequence[str]) -> Reader:
    """The reader for files of one format.

    Raises:
      InputError: the first file cannot be read, or the config names an unknown column.
    """
    if config.format == "parquet":
        from components.ingest import parquet

        check_names(config, list(parquet.columns(paths[0])), "parquet")
        return parquet.ParquetReader(paths[0], config.columns)
    if config.format == "tfrecord":
        from components.ingest import examples

        check_names(config, examples.names(paths[0], config.tfrecord), "tfrecord")
        return examples.ExampleReader(config.tfrecord)
    if config.format == "images":
        from components.ingest import images

        check_names(config, source.IMAGE_COLUMNS, "images")
        return images.ImageReader(images.label_type(paths, config.types.get("label")))
    from components.ingest import text

    names = header(paths[0], config.csv).names
    check_names(config, names, "csv")
    return text.TextReader(config.csv, paths[0], names, config.columns)


def _columns(paths: Sequence[str], format_: Format, config: DataConfig) -> list[str]:
    if format_ == "csv":
        names = header(paths[0], config.csv).names
        for path in paths[1:]:
            expect_header(path, header(path, config.csv), paths[0], names)
        return names
    if format_ == "parquet":
        from components.ingest import parquet

        return list(parquet.columns(paths[0]))
    if format_ == "tfrecord":
        from components.ingest import examples

        return examples.names(paths[0], config.tfrecord)
    return list(source.IMAGE_COLUMNS)
