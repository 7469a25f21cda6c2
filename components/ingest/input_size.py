"""The size of the input, which a run needs to choose the number of workers."""

from __future__ import annotations

from components.base.files import is_remote
from components.data import file_io
from components.ingest import input_files, readers
from components.ingest.config import DataConfig


def estimate_local_size(config: DataConfig) -> int:
    """Return the size of the input in bytes, with an estimate for images; 0 if it is not on this machine."""
    if config.bigquery or any(is_remote(path) for path in config.path):
        return 0
    paths = [path for of_pattern in input_files.files(config).values() for path in of_pattern]
    size = sum(map(file_io.size, paths))
    if config.images.path_column is None or is_remote(config.images.folder or ""):
        return size
    # Imported late, because it imports Arrow.
    from components.ingest import image_table

    table = readers.paths_reader(config.ingest(input_files.find(config).format), paths)
    return size + image_table.estimated_size(table, paths, config.images)
