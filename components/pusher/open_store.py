"""Open a local or remote push folder.

This module does not import heavy packages; the implementation is imported when a folder is opened.
"""

from __future__ import annotations

from components.base.files import is_remote
from components.base.object_store import is_object_store
from components.pusher.store import Store


def open_store(path: str) -> Store:
    """Open a push folder by its path or URL, without reading anything."""
    if not is_remote(path):
        from components.pusher import local_folder

        return local_folder.open_folder(path)
    if path.startswith("gs://"):
        from components.pusher import bucket_folder, gcs_objects

        return bucket_folder.open_folder(gcs_objects.open_objects(path))
    if is_object_store(path):
        from components.pusher import bucket_folder, fsspec_objects

        return bucket_folder.open_folder(fsspec_objects.open_objects(path))
    from components.pusher import remote_folder

    return remote_folder.open_folder(path)
