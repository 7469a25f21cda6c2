"""Finds the last run in an output folder, for commands without --config."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from components.base.errors import InputError, PipelineError

if TYPE_CHECKING:
    from pipeline.core.metadata.store import Run

DEFAULT_OUTPUT = "out"
_RUNS_SEARCHED = 20
"""Number of newest runs per store that are searched for a recorded config; runs of stock TFX do not record one."""


class LastRun(NamedTuple):
    """The last run in an output folder.

    Attributes:
      run: The run.
      folder: Folder of its pipeline, which contains the metadata store, the logs and the artifacts.
      config: The values of all fields of its config, as JSON values; None if the run did not record its config.
    """

    run: Run
    folder: Path
    config: dict[str, Any] | None

    @property
    def store(self) -> Path:
        """The metadata store of the pipeline."""
        return self.folder / "metadata.db"


def find_last_run(output: str | None, with_config: bool) -> LastRun:
    """Find the newest run of all pipelines in an output folder, and write to stderr which run it is.

    Args:
      output: The folder that --output names. If None, `out`.
      with_config: Whether to find the newest run that recorded its config, instead of the newest run.

    Raises:
      InputError: The folder does not contain such a run.
    """
    # Imported late, because --help does not need them.
    from pipeline.core.metadata.store import Store
    from pipeline.core.text import display_path, plain

    folder = Path(output or DEFAULT_OUTPUT)
    candidates, errors = [], []
    for file in sorted(folder.glob("*/metadata.db")):
        try:
            store = Store(file)
            runs = store.runs(newest=_RUNS_SEARCHED if with_config else 1)
            configs = store.configs(run.name for run in runs) if with_config else {}
            newest = next((run for run in runs if run.name in configs or not with_config), None)
            if newest is not None:
                candidates.append(LastRun(newest, file.parent, store.config(newest.name)))
        except PipelineError as error:
            # A damaged store of one pipeline does not keep the user from working on the other pipelines.
            errors.append(error)
    if errors and not candidates:
        raise errors[0]
    if not candidates:
        raise InputError(
            f"expected --config, or a run in the folder {folder.absolute()}, found neither",
            "name the folder of the runs with --output DIR, or a config with --config FILE",
        )
    last = max(candidates, key=lambda candidate: candidate.run.started)
    sys.stderr.write(f"using the last run, {plain(last.run.name)} in {display_path(last.folder)}\n")
    return last
