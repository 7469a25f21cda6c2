"""ML Metadata's own connections, for what TFX does with a store and for what mends one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto

from components.errors import MachineError
from pipeline.metadata.store import Store

ConnectionConfig = proto.ConnectionConfig
"""Where a store is: an SQLite file, or a database server."""
RUNNING = proto.Execution.RUNNING
"""The state of an execution that a node is at work on."""

_OPEN_ATTEMPTS = 10
_OPEN_PAUSE_SECONDS = 0.2


def reader(config: proto.ConnectionConfig) -> Store:
    """The store to read; where there is none yet, an empty one is made.

    Raises:
      MachineError: it cannot be opened.
    """
    path = Path(config.sqlite.filename_uri)
    try:
        return Store(path)
    except MachineError:
        # Not there, or its tables are just being made; what is wrong with any other, this tells.
        connect(config)
    return Store(path)


def read_only(path: Path) -> proto.ConnectionConfig:
    """A connection to an SQLite file that can change nothing, and creates nothing."""
    config = proto.ConnectionConfig()
    config.sqlite.filename_uri = str(path)
    config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READONLY
    return config


def writable(path: Path) -> proto.ConnectionConfig:
    """A connection to an SQLite file that is there, for who changes it."""
    config = proto.ConnectionConfig()
    config.sqlite.filename_uri = str(path)
    config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READWRITE
    return config


def connect(config: proto.ConnectionConfig) -> Any:
    """An open `MetadataStore`.

    Raises:
      MachineError: it cannot be opened, also not after a few attempts.
    """
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            return mlmd.MetadataStore(config)
        except (RuntimeError, mlmd.errors.StatusError) as error:
            # The very first nodes of a new store create its tables side by side, and one of them has to wait.
            if attempt == _OPEN_ATTEMPTS - 1:
                raise MachineError(
                    f"the metadata store {config.sqlite.filename_uri or ''} cannot be opened: {error}",
                    "move it away (its runs are forgotten then), or name another folder with --output DIR",
                ) from error
            time.sleep(_OPEN_PAUSE_SECONDS)
    raise AssertionError("unreachable")
