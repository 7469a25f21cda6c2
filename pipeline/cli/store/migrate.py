"""`runner.py store migrate`: migrate a metadata store to the schema of this release."""

from __future__ import annotations

import argparse
from pathlib import Path

from components.base.errors import InputError
from pipeline.cli.options import add_store, load_config
from pipeline.cli.output import show

HELP = "Migrate a metadata store of an older release to the schema of this release, after backing it up."
EXAMPLE = "python runner.py store migrate --config configs/mine.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
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

    if options.store is None and options.config is None:
        # The last run cannot be found: a store of another schema version cannot be read.
        raise InputError("expected --store or --config, received neither", "name the metadata.db with --store FILE")
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
