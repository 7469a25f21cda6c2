"""Estimate the size of the input, from which a run chooses the number of workers."""

from __future__ import annotations

from components.base.files import is_remote
from components.data import file_io
from components.ingest import input_files, readers
from components.ingest.config import DataConfig


def estimate_local_size(config: DataConfig) -> int:
    """Return the size of the input in bytes, with an estimate for images; 0 if the input is remote."""
    if config.bigquery or any(is_remote(path) for path in config.path):
        return 0
    paths = [path for pattern_paths in input_files.files(config).values() for path in pattern_paths]
    size = sum(map(file_io.size, paths))
    if config.images.path_column is None or is_remote(config.images.folder or ""):
        return size
    # Import late, because the module imports Arrow.
    from components.ingest import image_table

    table = readers.paths_reader(config.ingest(input_files.find(config).format), paths)
    return size + image_table.estimate_size(table, paths, config.images)
