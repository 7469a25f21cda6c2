"""Check that the finished nodes of a run match the pipeline that continues it, and record its current config."""

from __future__ import annotations

import json
from typing import Any

from tfx.orchestration import data_types_utils

from components.base.errors import InputError
from pipeline.core.metadata.connection import replace_config
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.store import Store
from pipeline.core.text import flatten_json

_RESOLVED = {"ExampleGen": ("input_config",)}
"""Parameters that a driver replaces, such as patterns with {SPAN}. `data.path` of the configs is compared instead."""
_SHOWN = 5


def record_config(store: Store, location: Location, run: str, config: str) -> None:
    """Replace the recorded config of a run if it differs from the current config.

    Call `check_finished` first: the finished nodes must match the current config.

    Args:
      store: Reader of the metadata store.
      location: Location of the same store, for writing.
      run: ID of the run.
      config: JSON text of the config with which the run continues; "" if the pipeline was not compiled from a config.
    """
    recorded = store.configs([run]).get(run)
    if config and recorded and recorded != config:
        replace_config(location, run, config)


def check_finished(store: Store, run: str, nodes: dict[str, Any], config: str) -> None:
    """Refuse to continue a run if the parameters of a finished node have changed since.

    Args:
      store: The metadata store.
      run: ID of the run.
      nodes: Node ID → message of the compiled pipeline. Nodes without a successful execution are ignored.
      config: JSON text of the pipeline's config; "" if the pipeline was not compiled from a config.

    Raises:
      InputError: A parameter or the path of the data differs.
    """
    finished = {
        execution.node: execution.id
        for execution in store.executions(run)
        if execution.succeeded and execution.node in nodes
    }
    recorded = store.parameters(finished.values())
    differences = _compare_paths(store, run, config) if "ExampleGen" in finished else []
    for name, execution_id in finished.items():
        before = recorded.get(execution_id, {})
        differences += [
            f"{name}: {path}: expected {old}, received {new}"
            for key, parameter in nodes[name].parameters.parameters.items()
            if key not in _RESOLVED.get(name, ()) and key in before
            for path, old, new in _compare_parameter(key, before[key], _get_value(parameter))
        ]
    if differences:
        hidden = len(differences) - _SHOWN
        raise InputError(
            f"run {run} has finished nodes with other settings: {'; '.join(differences[:_SHOWN])}"
            + (f"; and {hidden} more" if hidden > 0 else ""),
            "start a new run without --resume: unchanged nodes come from the cache. "
            "Or continue with the former settings",
            differences,
        )


def _get_value(parameter: Any) -> Any:
    return data_types_utils.get_metadata_value(parameter.field_value)


def _compare_paths(store: Store, run: str, config: str) -> list[str]:
    recorded = store.configs([run]).get(run)
    if not config or not recorded:
        return []
    before, now = (json.loads(text).get("data", {}).get("path") for text in (recorded, config))
    return [] if before == now else [f"ExampleGen: data.path: expected {before}, received {now}"]


def _compare_parameter(key: str, before: Any, now: Any) -> list[tuple[str, str, str]]:
    """Return (path, old value, new value) for each difference of a parameter; JSON is compared value by value."""
    if before == now:
        return []
    old, new = dict(flatten_json(before, key)), dict(flatten_json(now, key))
    paths = dict.fromkeys((*new, *old))
    return [(path, old.get(path, "none"), new.get(path, "none")) for path in paths if old.get(path) != new.get(path)]
