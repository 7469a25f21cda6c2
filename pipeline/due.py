"""Whether a scheduled run has something to do."""

from __future__ import annotations

from components.ingest import source
from pipeline.config import Config
from pipeline.metadata import history
from pipeline.metadata.database import exists
from pipeline.metadata.store import Store
from pipeline.metadata.tables import NoTablesError
from pipeline.paths import Paths


def due(config: Config) -> tuple[bool, str]:
    """Whether `schedule.only_if` holds, and why.

    Raises:
      InputError: the data has no span.
      MachineError: the metadata store does not open.
    """
    if config.schedule is None or config.schedule.only_if == "every":
        return True, "it runs each time"
    newest = source.newest_span(config.data)
    taken = _newest_taken(config)
    if taken is None:
        return True, f"no run has ended well yet; the newest span is {newest}"
    if newest > taken:
        return True, f"the newest span is {newest}, and the last run that ended well took {taken}"
    return False, f"the last run that ended well took span {taken}, and there is none after it"


def _newest_taken(config: Config) -> int | None:
    paths = Paths.of(config)
    try:
        store = Store(paths.store) if exists(paths.store) else None
    except NoTablesError:
        store = None
    if store is None:
        return None
    ended_well = history.rows(store, paths.logs, config.pipeline.name, newest=1, states=("done", "rejected"))
    return next((max(row.spans) for row in ended_well if row.spans), None)
