"""`runner.py metadata`: migrate a metadata store to the schema of this release."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.cli.options import add_store, load_config
from pipeline.cli.output import show

HELP = "Migrate a metadata store of an older release to the schema of this release, after backing it up."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["migrate"], help="migrate: upgrade the store's schema")
    add_store(parser)
    parser.add_argument(
        "--backed-up",
        action="store_true",
        help="confirm that a copy of the database exists; a store in a file is copied automatically",
    )


def run(options: argparse.Namespace) -> int:
    from pipeline.core.metadata.location import location
    from pipeline.core.metadata.maintenance import migrate
    from pipeline.core.metadata.sql import SCHEMA_VERSION
    from pipeline.core.text import display_path

    store = location(options.store) if options.store is not None else load_config(options).config.paths().store
    version, copy = migrate(store, options.backed_up)
    name = display_path(store) if isinstance(store, Path) else str(store)
    if version == SCHEMA_VERSION:
        show(f"{name} has schema version {SCHEMA_VERSION} already")
        return 0
    show(f"{name}: schema version {version} is now {SCHEMA_VERSION}")
    if copy is not None:
        show(f"copy of the earlier state: {display_path(copy)}")
    return 0
