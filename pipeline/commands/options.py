"""Options that several verbs share: which config, and what is laid over it, or whose metadata to look at."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import InputError

if TYPE_CHECKING:
    from pipeline.config import Loaded
    from pipeline.metadata.store import Store

DEFAULT_CONFIG = "configs/taxi.yaml"


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
    parser.add_argument("--output", metavar="DIR", help="folder for everything that is made (default: out)")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds --models, and --config, --set and --output for who gives none."""
    add_config(parser)
    parser.add_argument(
        "--models", metavar="FOLDER", help="the push folder; then no config is read (default: that of the config)"
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Adds --store, and --config, --set and --output for who gives none."""
    add_config(parser)
    parser.add_argument(
        "--store", metavar="FILE", help="a metadata.db, also of stock TFX; then no config is read, and all is looked at"
    )


@dataclass(frozen=True)
class Remembered:
    """What is to be looked at.

    Attributes:
      store: with the runs.
      path: of the store.
      pipeline: the one that the config names; None: all that are in the store.
    """

    store: Store
    path: Path
    pipeline: str | None

    @property
    def logs(self) -> Path:
        """The folder with what our own runs have written down, if they are ours."""
        return self.path.parent / "logs"


def open_store(options: argparse.Namespace) -> Remembered:
    """The store that --store names, or else the config.

    Raises:
      InputError: it is not there, or the config is not valid.
      MachineError: it does not open.
    """
    from pipeline.metadata.store import Store

    if options.store is not None:
        path, pipeline, remedy = Path(options.store), None, "name the metadata.db of a pipeline"
    else:
        # Imported late: --store needs no config.
        from pipeline.paths import Paths

        config = load_config(options).config
        path, pipeline, remedy = Paths.of(config).store, config.pipeline.name, "run the pipeline first"
    if not path.exists():
        raise InputError(f"nothing has run yet: there is no metadata store {path}", remedy)
    return Remembered(Store(path), path, pipeline)


def add_reason(parser: argparse.ArgumentParser) -> None:
    """Adds --reason."""
    parser.add_argument("--reason", metavar="TEXT", help="why; kept in the history")


def load_config(options: argparse.Namespace, *assignments: str) -> Loaded:
    """Loads the config that the options name.

    Args:
      options: parsed options of `add_config`.
      assignments: further `field=value` of the verb's own options.
    """
    # Imported late, so that --help does not wait for pydantic.
    from pipeline.config import load

    output = () if options.output is None else (f"runtime.output={_quoted(options.output)}",)
    return load(options.config, [*options.set, *output, *assignments])


def _quoted(text: str) -> str:
    """A text that YAML reads as just that text."""
    return "'" + text.replace("'", "''") + "'"
