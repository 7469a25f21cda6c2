"""Options that several verbs share: the config and its overrides, or the metadata store."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components import model_signature
from components.errors import InputError
from components.files import is_remote
from pipeline.cli.local_paths import local_path
from pipeline.registry.versions import PushFolder

if TYPE_CHECKING:
    from pipeline.authoring.config import Config, Loaded
    from pipeline.core.metadata.location import Location
    from pipeline.core.metadata.store import Store

DEFAULT_CONFIG = "configs/taxi.yaml"
_RUN_FIRST = "run the pipeline first"


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds --config, --set and --output."""
    parser.add_argument(
        "--config", metavar="FILE", default=DEFAULT_CONFIG, help=f"the pipeline (default: {DEFAULT_CONFIG})"
    )
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="set a field, such as training.steps=200; repeatable",
    )
    parser.add_argument("--output", type=local_path, metavar="DIR", help="folder for all outputs (default: out)")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds --engine."""
    parser.add_argument(
        "--engine", metavar="NAME", help="what Beam runs on: direct, dataflow, flink, spark, portable; docs/engines.md"
    )


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds --models, and --config, --set and --output as its alternative."""
    add_config(parser)
    parser.add_argument(
        "--models", metavar="FOLDER", help="the push folder; then no config is read (default: that of the config)"
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Adds --store, and --config, --set and --output as its alternative."""
    add_config(parser)
    parser.add_argument(
        "--store",
        metavar="FILE",
        help="a metadata.db, or postgresql://USER@HOST/DATABASE, also of stock TFX; then no config is read, and all "
        "pipelines are included",
    )


@dataclass(frozen=True)
class StoreSelection:
    """A metadata store, and the pipelines of it that a verb is for.

    Attributes:
      store: with the runs.
      logs: the folder with a folder per run of this project.
      pipeline: that of the config; None: all of the store.
    """

    store: Store
    logs: Path
    pipeline: str | None


def open_store(options: argparse.Namespace) -> StoreSelection:
    """Opens the store of --store, or else that of the config.

    Raises:
      InputError: it is not there, or the config is not valid.
      MachineError: it does not open.
    """
    store, logs, pipeline = find_store(options)
    return _open(store, logs, pipeline, "name the metadata.db of a pipeline" if pipeline is None else _RUN_FIRST)


def find_store(options: argparse.Namespace) -> tuple[Location, Path, str | None]:
    """The location of the store of --store, or else of the config; the folder of its logs; the config's pipeline.

    Raises:
      InputError: the config is not valid.
    """
    if options.store is not None:
        from pipeline.core.metadata.location import location

        store = location(options.store)
        return store, (store.parent if isinstance(store, Path) else Path()) / "logs", None
    # Imported late: --store needs no config.

    config = load_config(options).config
    paths = config.paths()
    return paths.store, paths.logs, config.pipeline.name


def open_own(config: Config) -> StoreSelection:
    """The store of a config's pipeline.

    Raises:
      InputError: it is not there.
      MachineError: it does not open.
    """
    paths = config.paths()
    return _open(paths.store, paths.logs, config.pipeline.name, _RUN_FIRST)


def _open(store: Location, logs: Path, pipeline: str | None, remedy: str) -> StoreSelection:
    from pipeline.core.metadata.location import exists
    from pipeline.core.metadata.sql import NoTablesError
    from pipeline.core.metadata.store import Store

    missing = InputError(f"nothing has run yet: there is no metadata store {store}", remedy)
    if not exists(store):
        raise missing
    try:
        return StoreSelection(Store(store), logs, pipeline)
    except NoTablesError as error:
        # A file that is no store is an error; an empty database is a store of no run.
        raise error if isinstance(store, Path) else missing from error


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_reason(parser: argparse.ArgumentParser) -> None:
    """Adds --reason."""
    parser.add_argument("--reason", metavar="TEXT", help="the reason, which the history records")


def load_config(options: argparse.Namespace, *assignments: str) -> Loaded:
    """Loads the config of the options.

    Args:
      options: parsed options of `add_config`, and perhaps of `add_engine`.
      assignments: further `field=value` of the verb's own options.
    """
    # Imported late, so that --help does not wait for pydantic.
    from pipeline.authoring.config import load

    overrides = {"output": options.output, "engine": getattr(options, "engine", None)}
    assigned = [f"runtime.{name}={quoted(value)}" for name, value in overrides.items() if value is not None]
    return load(options.config, [*options.set, *assigned, *assignments])


def check_before_run(loaded: Loaded) -> None:
    """Checks the config against data, folders and stores, then whether the engine can be reached.

    Raises:
      InputError: the data, the schema, a folder or the engine does not fit the config.
      MachineError: the metadata store does not open, the disk is full, or the engine does not answer.
    """
    from pipeline.authoring import preflight
    from pipeline.orchestration.engines import checks

    preflight.check(loaded)
    warn_of_unread(loaded)
    checks.check(loaded.config, loaded.config.paths())


def warn_of_unread(loaded: Loaded) -> None:
    """Write to stderr what lies in the folders of the data and is not read."""
    from components.ingest import input_files

    if names := input_files.unread(loaded.config.data):
        sys.stderr.write(f"warning: data.path: not read: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}\n")


def quoted(text: str) -> str:
    """A text as a YAML string."""
    return "'" + text.replace("'", "''") + "'"


def find_push_folder(options: argparse.Namespace) -> PushFolder:
    """Returns the push folder that --models names, or else that of the config.

    Raises:
      InputError: the config is not valid, or the folder does not exist.
    """
    if options.models is not None:
        if not is_remote(options.models) and not Path(options.models).is_dir():
            raise InputError(
                f"--models: expected a push folder, received {options.models}", "name the folder with the versions"
            )
        return PushFolder(options.models, None, public_key=model_signature.key_file(os.environ))
    # Imported late: --models needs no config.
    return push_folder_of(load_config(options).config)


def push_folder_of(config: Config) -> PushFolder:
    """The push folder of a config.

    Raises:
      InputError: the variable of the public key does not name a key.
    """
    name = config.push.rollout.model_name or config.pipeline.name
    settings = config.push.rollout.model_copy(update={"model_name": name})
    public_key = model_signature.key_file(os.environ, config.push.model_signing.public_key_env)
    return PushFolder(config.paths().pushed, settings, config.canary.apply, public_key)
