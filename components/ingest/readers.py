"""Find the columns of the input, quickly enough to check them before a run, and create the reader for its format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from components.base.errors import InputError
from components.base.files import is_remote
from components.base.names import did_you_mean
from components.ingest import input_files, side_files
from components.ingest.config import DataConfig, Format, ImagesConfig, RowsConfig
from components.ingest.csv_header import check_header, read_header

_RANGE_OF_TABLE = 64 << 10
"""Bytes of text in a range of a table with the names of images, about a thousand rows."""

if TYPE_CHECKING:
    # Not at run time, because the module imports NumPy and Arrow.
    from components.ingest.blocks import Reader
    from components.ingest.joined_reader import Join


def columns(config: DataConfig) -> list[str] | None:
    """Return the names of the selected columns and of those that are added; None if the rows come from a query.

    Raises:
      InputError: If the input does not exist or cannot be read, headers differ, or the config names an unknown column.
    """
    if config.bigquery:
        return None
    format_ = input_files.find(config).format
    paths = [path for pattern_paths in input_files.files(config).values() for path in pattern_paths]
    names = _read_columns(paths, format_, config)
    joined = check_names(config, names, format_)
    for label in config.declared_labels:
        if shared := [name for name in label.columns if name in joined]:
            raise InputError(
                f"{label}: expected a column of data.path, received {shared[0]!r}, which data.join adds",
                "predict a column of the data; a side table contains what is known before",
            )
    names += [*joined, *_find_added(config.images)]
    names = [name for name in names if not config.columns or name in config.columns]
    if windows := config.ingested_windows:
        windows.check_columns(names)
        names += windows.added
    return names


def check_names(config: RowsConfig, names: Sequence[str], format_: Format) -> list[str]:
    """Check the column names in the config, and return the columns that `data.join` adds.

    Args:
      config: Config of the rows.
      names: Names of the columns in the data.
      format_: Format of the data.

    Raises:
      InputError: If a name is unknown, or the format does not support the setting.
    """
    joined = side_files.check(config, names, format_)
    names = [*names, *joined]
    _check_images(config.images, names, format_)
    names += _find_added(config.images)
    if format_ in ("tfrecord", "images"):
        for field in ("columns",) if format_ == "images" else ("columns", "types"):
            if getattr(config, field):
                reason = "records are passed on as they are" if format_ == "tfrecord" else "images have three columns"
                raise InputError(f"data.{field} has no meaning with {format_} files: {reason}", "remove it")
    if config.csv.formats and format_ != "csv":
        raise InputError(f"data.csv.formats has no meaning with {format_} files: it describes text", "remove it")
    fields = {"columns": config.columns, "types": config.types, "split.columns": config.split.columns}
    for field, columns_of_field in {**fields, "csv.formats": config.csv.formats}.items():
        for column in columns_of_field:
            if column not in names:
                raise InputError(
                    f"data.{field}: there is no column {column!r}{did_you_mean(column, names)}",
                    "name columns of the data",
                )
    for column in config.types:
        if (format_ == "images" and column != "label") or column in _find_added(config.images):
            raise InputError(f"data.types: the column {column!r} of images is always bytes", "remove it")
    for column in config.split.columns:
        if config.columns and column not in config.columns:
            raise InputError(f"data.split.columns: {column!r} is not among data.columns", "add it there")
    return joined


def _check_images(config: ImagesConfig, names: Sequence[str], format_: Format) -> None:
    """Check the columns of images; see `check_names`."""
    path_column, field = config.path_column, "data.images.path_column"
    if path_column is not None:
        if format_ not in ("csv", "parquet"):
            raise InputError(f"{field} has no meaning with {format_} files: it is a column of a table", "remove it")
        if path_column not in names:
            raise InputError(
                f"{field}: there is no column {path_column!r}{did_you_mean(path_column, names)}",
                "name the column with the names of the image files",
            )
        if config.folder is not None and not is_remote(config.folder) and not Path(config.folder).is_dir():
            raise InputError(
                f"data.images.folder: there is no folder {config.folder}",
                "set it to the folder that relative names in path_column start at",
            )
        if config.column in names:
            raise InputError(
                f"data.images.column: the data has a column {config.column!r} already",
                "set data.images.column to another name for the column of images, such as photo",
            )
    for column in config.encoded_columns or ():
        if column in names and format_ == "csv":
            raise InputError(
                f"the column {column!r} is read as images: expected encoded images, received text of a CSV file",
                f"if it contains the names of image files, set data.images.path_column to {column}, and use the "
                f"operation image for the column {config.column}",
            )
        if column not in names and column not in _find_added(config) and format_ != "images":
            raise InputError(
                f"data.images.encoded_columns: there is no column {column!r}{did_you_mean(column, names)}",
                "name columns with encoded images",
            )


def _find_added(config: ImagesConfig) -> list[str]:
    """Return the columns that are added to the columns of the files."""
    return [] if config.path_column is None else [config.column]


def reader(config: RowsConfig, paths: Sequence[str], joins: Sequence[Join] | None = None) -> Reader:
    """Create the reader for files of one format.

    Args:
      config: Config of the rows, with the format.
      paths: Paths of all files.
      joins: The joins of the config. If None, side tables are read into memory.

    Raises:
      InputError: If the first file cannot be read, or the config names an unknown column.
    """
    selected = config.columns
    images = config.images
    if images.path_column is not None and (not selected or images.column in selected):
        from components.ingest.image_table import ImageTable

        keep_path = not selected or images.path_column in selected
        table_columns = [name for name in selected if name != images.column]
        if not keep_path:
            table_columns.append(images.path_column)
        return ImageTable(rows_reader(config, paths, table_columns, joins), images, keep_path)
    rows = rows_reader(config, paths, selected, joins)
    encoded = [name for name in images.encoded_columns or () if not selected or name in selected]
    if encoded and config.format in ("parquet", "tfrecord"):
        from components.ingest.encoded_images import EncodedImages

        return EncodedImages(rows, encoded, images.max_megapixels)
    return rows


def paths_reader(config: RowsConfig, paths: Sequence[str]) -> Reader:
    """Create a reader of tables that only reads the column with the names of image files.

    Raises:
      InputError: If the first file cannot be read, or the config names an unknown column.
    """
    return rows_reader(config, paths, [str(config.images.path_column)])


def rows_reader(
    config: RowsConfig, paths: Sequence[str], selected: Sequence[str], joins: Sequence[Join] | None = None
) -> Reader:
    """Create a reader that does not add or check images. It reads the selected columns, or all columns for ().

    Args:
      config: Config of the rows, with the format.
      paths: Paths of all files.
      selected: Names of the columns.
      joins: The first joins of the config, which add the selected columns. If None, side tables are read into memory.
    """
    if not config.join:
        return _create_file_reader(config, paths, selected)
    from components.ingest import joined_reader

    return joined_reader.create(config, selected, lambda columns: _create_file_reader(config, paths, columns), joins)


def _create_file_reader(config: RowsConfig, paths: Sequence[str], selected: Sequence[str]) -> Reader:
    """Create a reader of the columns of the files."""
    if config.format == "parquet":
        from components.ingest import parquet_reader

        check_names(config, list(parquet_reader.columns(paths[0])), "parquet")
        return parquet_reader.ParquetReader(paths[0], selected)
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
    # A row of such a table stands for a whole image, so use smaller ranges.
    options = {} if config.images.path_column is None else {"range_bytes": _RANGE_OF_TABLE}
    return csv_reader.CsvReader(config.csv, paths[0], names, selected, **options)


def _read_columns(paths: Sequence[str], format_: Format, config: DataConfig) -> list[str]:
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
