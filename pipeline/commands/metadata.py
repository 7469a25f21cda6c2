"""`runner.py metadata`: looks after the store itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.commands.options import add_store, load_config
from pipeline.commands.told import show

HELP = "Bring a metadata store that an older release has made up to this one's schema, after a copy."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to do, the store and --backed-up."""
    parser.add_argument("action", choices=["migrate"], help="migrate: bring it up to date")
    add_store(parser)
    parser.add_argument(
        "--backed-up", action="store_true", help="there is a copy of the database; a file's is made beside it"
    )


def run(options: argparse.Namespace) -> int:
    """Migrates.

    Raises:
      InputError: a server's store, without --backed-up.
      MachineError: the store does not open, or is of a newer release.
    """
    from pipeline.metadata.database import location
    from pipeline.metadata.migration import migrate
    from pipeline.metadata.tables import SCHEMA_VERSION
    from pipeline.paths import Paths, shown

    place = location(options.store) if options.store is not None else Paths.of(load_config(options).config).store
    version, copy = migrate(place, options.backed_up)
    told = shown(place) if isinstance(place, Path) else str(place)
    if version == SCHEMA_VERSION:
        show(f"{told} has schema version {SCHEMA_VERSION} already")
        return 0
    show(f"{told}: schema version {version} is now {SCHEMA_VERSION}")
    if copy is not None:
        show(f"as it was before: {shown(copy)}")
    return 0
