"""`runner.py metadata`: looks after the store itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.cli.options import add_store, load_config
from pipeline.cli.output import show

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
    from pipeline.core.metadata.location import location
    from pipeline.core.metadata.maintenance import migrate
    from pipeline.core.metadata.sql import SCHEMA_VERSION
    from pipeline.core.text import shown

    place = location(options.store) if options.store is not None else load_config(options).config.paths().store
    version, copy = migrate(place, options.backed_up)
    name = shown(place) if isinstance(place, Path) else str(place)
    if version == SCHEMA_VERSION:
        show(f"{name} has schema version {SCHEMA_VERSION} already")
        return 0
    show(f"{name}: schema version {version} is now {SCHEMA_VERSION}")
    if copy is not None:
        show(f"as it was before: {shown(copy)}")
    return 0
