"""Whether a scheduled run has something to do."""

from __future__ import annotations

from pipeline.config import Config
from pipeline.metadata import history
from pipeline.metadata.database import exists
from pipeline.metadata.store import Store
from pipeline.metadata.tables import NoTablesError
from pipeline.paths import Paths

_SHOWN = 3
_SPLIT = "train"


def due(config: Config) -> tuple[bool, str]:
    """Whether `schedule.only_if` holds, and why.

    To see whether the data has drifted, the nodes up to StatisticsGen are run on it, as a run of their own; the run
    that follows finds what they have made in the cache.

    Raises:
      InputError: the data has no span, or does not fit the config.
      MachineError: the metadata store does not open, or the data cannot be counted.
    """
    if config.schedule is None or config.schedule.only_if == "every":
        return True, "it runs each time"
    from components.ingest import source

    newest = source.newest_span(config.data)
    store = _store(config)
    last = store and _last_judged(config, store)
    if not store or not last:
        return True, f"no run has judged a model yet; the newest span is {newest}"
    taken = max(last.spans)
    if newest <= taken:
        return False, f"the last run that judged a model took span {taken}, and there is none after it"
    if config.schedule.only_if == "new_span":
        return True, f"the newest span is {newest}, and the last run that judged a model took {taken}"
    return _drifted(config, store, last, newest, config.schedule.drift)


def _store(config: Config) -> Store | None:
    place = Paths.of(config).store
    try:
        return Store(place) if exists(place) else None
    except NoTablesError:
        return None


def _last_judged(config: Config, store: Store) -> history.Row | None:
    """The newest run of the whole pipeline; one that stopped earlier has made nothing of its data."""
    rows = history.rows(store, Paths.of(config).logs, config.pipeline.name, states=("done", "rejected"))
    return next((row for row in rows if row.verdict and row.spans), None)


def _drifted(config: Config, store: Store, last: history.Row, newest: int, bound: float) -> tuple[bool, str]:
    from pipeline.metadata import data

    now = _counted(config)
    changes = data.changes(data.columns(store, last.run, _SPLIT), data.columns(store, now, _SPLIT))
    gone = [each.name for each in changes if None in (each.before, each.now)]
    if gone:
        return True, f"span {newest} has not the columns of run {last.run}: {', '.join(gone[:_SHOWN])}"
    apart = [(each.distance, each.name) for each in changes if each.distance is not None]
    moved = [f"{name} {distance:.3f}" for distance, name in apart if distance >= bound]
    if moved:
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        return True, f"span {newest} has drifted from run {last.run}: {', '.join(moved[:_SHOWN])}{more}"
    distance, name = max(apart, default=(0.0, "no column"))
    return False, f"span {newest} has not drifted by {bound} from run {last.run}: at most {name}, {distance:.3f}"


def _counted(config: Config) -> str:
    """Counts the newest span; returns the run that did."""
    import functools

    from components.errors import MachineError
    from pipeline.targets import compiled, local

    local.start_server()
    ended = local.run(
        local.LocalJob(
            config.pipeline.name,
            Paths.of(config).root,
            functools.partial(compiled.in_child, config),
            to_nodes=("StatisticsGen",),
            screen="json",
        )
    )
    if ended.exit_code:
        raise ended.error or MachineError(f"run {ended.run} has not counted the data", "see its log")
    return ended.run
