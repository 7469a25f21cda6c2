"""Options that several commands share: the config and its overrides, the metadata store, or the push folder."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from components.base.errors import InputError
from components.base.files import is_remote
from components.base.names import did_you_mean
from components.compat.pydantic import without_plugins
from components.results import model_signature
from pipeline.cli.last_run import DEFAULT_OUTPUT, find_last_run
from pipeline.cli.local_paths import parse_local_path
from pipeline.core.addons import ENGINES
from pipeline.registry.versions import PushFolder

if TYPE_CHECKING:
    from pipeline.authoring.config import Config, Loaded
    from pipeline.core.metadata.location import Location
    from pipeline.core.metadata.store import Run, Store

Arguments: TypeAlias = argparse.ArgumentParser | argparse._ArgumentGroup
DEFAULT_CONFIG = "configs/taxi.yaml"
"""The example that `run` takes if no config is given."""
LATEST = "latest"
_RUN_FIRST = "run the pipeline first, or name the folder of its runs with --output DIR"


def add_config(parser: Arguments, default: str | None = None) -> None:
    """Add --config, --set and --output.

    Args:
      parser: The parser of the command.
      default: Path of the config if --config is absent. If None, `load_config` loads the config of the last run.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=default,
        help=f"the pipeline (default: {default or 'the config of the last run in --output'})",
    )
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="set a field, such as training.steps=200; repeatable",
    )
    parser.add_argument("--output", type=parse_local_path, metavar="DIR", help="folder of the runs (default: out)")


def add_engine(parser: Arguments) -> None:
    """Add --engine."""
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help=f"what Beam runs on: {', '.join(ENGINES)}; docs/how-to/engines.md",
    )


def add_models(parser: Arguments) -> None:
    """Add --models, and --config, --set and --output as its alternative."""
    add_config(parser)
    parser.add_argument(
        "--models", metavar="FOLDER", help="the push folder, without a config (default: the config's push folder)"
    )


def add_store(parser: Arguments) -> None:
    """Add --store, and --config, --set and --output as its alternative."""
    add_config(parser)
    parser.add_argument(
        "--store",
        metavar="FILE",
        help="a metadata.db, or postgresql://USER@HOST/DATABASE, also one written by stock TFX; then no config is "
        "read, and all pipelines are included",
    )


def add_run(parser: Arguments) -> None:
    """Add the run, and the options of `add_store`."""
    parser.add_argument("run", nargs="?", default=LATEST, help="its id, or the beginning of it (default: the latest)")
    add_store(parser)


def add_two_runs(parser: Arguments) -> None:
    """Add the runs to compare, and the options of `add_store`."""
    parser.add_argument("before", help="the first run: its id, or the beginning of its id")
    parser.add_argument("now", nargs="?", default=LATEST, help="the second run (default: the latest)")
    add_store(parser)


@dataclass(frozen=True)
class StoreSelection:
    """A metadata store, and the pipeline in it that a command is restricted to.

    Attributes:
      location: Where the store is: the path of its file, or the database.
      store: The store, opened for reading.
      logs: Folder of the run logs, with one subfolder per run. Runs of stock TFX do not have one.
      pipeline: Name of the config's pipeline. If None, the command covers all pipelines in the store.
    """

    location: Location
    store: Store
    logs: Path
    pipeline: str | None

    def find_run(self, reference: str) -> Run:
        """Return the run that a user refers to.

        Args:
          reference: The ID of the run, a prefix of the ID, or `latest`.

        Raises:
          InputError: No run matches, or the prefix matches several runs.
        """
        store, pipeline = self.store, self.pipeline
        runs = store.runs(pipeline, 1) if reference == LATEST else store.runs_like(reference, pipeline)
        exact = [run for run in runs if run.name == reference]
        if len(exact or runs) == 1:
            return (exact or runs)[0]
        if runs:
            raise InputError(
                f"the ids of several runs begin with {reference!r}: {', '.join(run.name for run in runs[:5])}",
                "write more characters of the id",
            )
        newest = [run.name for run in store.runs(pipeline, 20)]
        raise InputError(
            f"there is no run {reference!r}{did_you_mean(reference, newest) if newest else ''}",
            f"the newest is {newest[0]}; `python runner.py runs` lists them" if newest else "run the pipeline first",
        )


def open_store(options: argparse.Namespace) -> StoreSelection:
    """Open the store that --store names, the config's store, or the store of the last run in the output folder.

    Raises:
      InputError: The store does not exist, or the config is not valid.
      MachineError: The store cannot be opened.
    """
    store, logs, pipeline = find_store(options)
    return _open(store, logs, pipeline, "name the metadata.db of a pipeline" if pipeline is None else _RUN_FIRST)


def open_runs(options: argparse.Namespace, *references: str) -> tuple[StoreSelection, list[Run]]:
    """Open the store as `open_store` does, and find runs in it as `StoreSelection.find_run` does."""
    opened = open_store(options)
    return opened, [opened.find_run(reference) for reference in references]


def split_model_name(model: str, loaded: Loaded) -> tuple[str, str]:
    """Split NAME@VERSION into the name of the config's model and the version.

    Raises:
      InputError: The name is not the name of the config's model.
    """
    name, _, reference = model.partition("@")
    expected = get_model_name(loaded.config)
    if name not in ("", expected):
        raise InputError(
            f"--model: expected {expected}, the model of {loaded.document.name}, received {name}",
            "name the config of the model with --config",
        )
    return expected, reference


def find_store(options: argparse.Namespace) -> tuple[Location, Path, str | None]:
    """Return the location of the store that --store names, of the config's store, or of the last run's store.

    Returns:
      The location, the folder of the run logs, and the name of the pipeline (None with --store).

    Raises:
      InputError: The config is not valid.
    """
    if options.store is not None:
        from pipeline.core.metadata.location import location

        store = location(options.store)
        return store, (store.parent if isinstance(store, Path) else Path()) / "logs", None
    if options.config is None and not options.set:
        # Runs of stock TFX do not record a config, and a damaged config does not hide the runs.
        last = find_last_run(options.output, with_config=False)
        return last.store, last.folder / "logs", last.run.pipeline
    config = load_config(options).config
    paths = config.paths()
    return paths.store, paths.logs, config.pipeline.name


def open_config_store(config: Config) -> StoreSelection:
    """Open the store of a config's pipeline.

    Raises:
      InputError: The store does not exist.
      MachineError: The store cannot be opened.
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
        return StoreSelection(store, Store(store), logs, pipeline)
    except NoTablesError as error:
        # An empty database counts as a store without runs. A file without the tables is not a store at all.
        raise error if isinstance(store, Path) else missing from error


def add_json(parser: Arguments) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_reason(parser: Arguments) -> None:
    """Add --reason."""
    parser.add_argument("--reason", metavar="TEXT", help="the reason, which the history records")


def load_config(options: argparse.Namespace, *assignments: str) -> Loaded:
    """Load the config that --config names, or the config of the last run in the output folder, with all overrides.

    In the second case, a line on stderr says which run that is.

    Args:
      options: Parsed options of `add_config` and, if the command has it, `add_engine`.
      assignments: Additional `field=value` overrides from other options of the command. They take precedence.

    Raises:
      InputError: The config or an override is not valid, or there is no --config and no run in the output folder.
    """
    overrides = {"output": options.output, "engine": getattr(options, "engine", None)}
    runtime_assignments = [
        f"runtime.{name}={quote_yaml(value)}" for name, value in overrides.items() if value is not None
    ]
    overridden = [*options.set, *runtime_assignments, *assignments]
    # Find the run before pydantic is imported, so that a missing run is reported at once.
    last = find_last_run(options.output, with_config=True) if options.config is None else None
    with without_plugins():
        from pipeline.authoring.config import load, load_recorded

    if last is None:
        return load(options.config, overridden)
    # Set the folder where the run was found, because the run may have been started in another folder.
    folder = f"runtime.output={quote_yaml(options.output or DEFAULT_OUTPUT)}"
    return load_recorded(f"config of run {last.run.name}", last.config or {}, [folder, *overridden])


def check_before_run(loaded: Loaded) -> None:
    """Check the config against data, folders and metadata store, then check that the engine is reachable.

    Raises:
      InputError: The data, the schema, a folder or the engine does not match the config.
      MachineError: The metadata store cannot be opened, the disk is full, or the engine does not answer.
    """
    from pipeline.authoring import preflight
    from pipeline.orchestration.engines import checks

    preflight.check(loaded)
    warn_of_unread_files(loaded)
    checks.check(loaded.config, loaded.config.paths())


def warn_of_unread_files(loaded: Loaded) -> None:
    """Write a warning to stderr that names files in the data folders that `data.path` does not select."""
    from components.ingest import input_files

    if names := input_files.unread(loaded.config.data):
        sys.stderr.write(f"warning: data.path: not read: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}\n")


def quote_yaml(text: str) -> str:
    """Return a text as a single-quoted YAML string."""
    return "'" + text.replace("'", "''") + "'"


def find_push_folder(options: argparse.Namespace) -> PushFolder:
    """Return the push folder named by --models, or the config's push folder if that option is absent.

    Raises:
      InputError: The config is not valid, or the folder does not exist.
    """
    if options.models is not None:
        if not is_remote(options.models) and not Path(options.models).is_dir():
            raise InputError(
                f"--models: expected a push folder, received {options.models}", "name the folder with the versions"
            )
        return PushFolder(options.models, None, public_key=model_signature.key_file(os.environ))
    return get_push_folder(load_config(options).config)


def get_model_name(config: Config) -> str:
    """Return the name under which the config's model is served."""
    return config.push.rollout.model_name or config.pipeline.name


def get_push_folder(config: Config) -> PushFolder:
    """Return the push folder of a config.

    Raises:
      InputError: The environment variable of the public key does not name a key file.
    """
    settings = config.push.rollout.model_copy(update={"model_name": get_model_name(config)})
    public_key = model_signature.key_file(os.environ, config.push.model_signing.public_key_env)
    return PushFolder(config.paths().pushed, settings, config.canary.apply, public_key)
