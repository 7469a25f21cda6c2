"""The read model of a metadata store: runs, executions, artifacts and events as plain records, without protobuf.

The cost of a query grows with the size of its result, not with the number of runs in the store: every query uses an
index, and reads all items of a list at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

from components.base import recorded_config
from components.base.object_store import is_object_store
from pipeline.core.metadata.location import Location, location
from pipeline.core.metadata.sql import Tables, prefix_range

Value: TypeAlias = "int | float | str"

RUN_CONTEXT = "pipeline_run"
NODE_CONTEXT = "node"
PIPELINE_CONTEXT = "pipeline"

# Enum values of metadata_store.proto: Execution.State, Artifact.State and Event.Type.
_EXECUTION_STATES = ("UNKNOWN", "NEW", "RUNNING", "COMPLETE", "FAILED", "CACHED", "CANCELED")
_ARTIFACT_STATES = ("UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE")
INPUT, OUTPUT = 3, 4
_ARTIFACT_KIND, _CONTEXT_KIND = 1, 2
_STRUCTURED = "mlmd-struct::"
"""Prefix of the texts with which ML Metadata represents structured values."""
_RUNS = """
    SELECT run.id, run.name, pipeline.name, run.create_time_since_epoch FROM Context run
    LEFT JOIN ParentContext child ON child.context_id = run.id
    LEFT JOIN Context pipeline ON pipeline.id = child.parent_context_id AND pipeline.type_id = ?
    WHERE run.type_id = ? AND (child.context_id IS NULL OR pipeline.id IS NOT NULL)"""
# The unary plus disables the index on types, so that SQLite uses the index on times. It then reads only as many runs as
# the limit requires, instead of sorting all runs.
_BY_TIME = _RUNS.replace("run.type_id", "+run.type_id")
_RUN_OF = """
    SELECT e.id, (
        SELECT run.id FROM Context run JOIN Association link ON link.context_id = run.id AND link.execution_id = e.id
        WHERE +run.type_id = ? AND run.create_time_since_epoch <= e.create_time_since_epoch
        ORDER BY run.create_time_since_epoch DESC LIMIT 1
    ) FROM Execution e WHERE e.id IN (…)"""
_EXECUTIONS = """
    SELECT e.id, type.name, e.last_known_state, e.create_time_since_epoch, e.last_update_time_since_epoch
    FROM Execution e JOIN Type type ON type.id = e.type_id WHERE e.id IN (…)"""
_ALL = 2**62
"""A LIMIT that no store reaches."""
_NEWEST = " ORDER BY run.create_time_since_epoch DESC, run.id DESC"
_NODES = "SELECT id, name FROM Context WHERE type_id = ?"
_MAKERS = """
    SELECT artifact_id, MIN(execution_id) FROM Event WHERE type = ? AND artifact_id IN (…) GROUP BY artifact_id"""
_ARTIFACTS = """
    SELECT a.id, type.name, a.uri, a.state, a.create_time_since_epoch FROM Artifact a
    JOIN Type type ON type.id = a.type_id"""
_EVENTS = """
    SELECT event.id, event.execution_id, event.artifact_id, path.step_key, event.type FROM Event event
    LEFT JOIN EventPath path ON path.event_id = event.id AND path.is_index_step = FALSE"""
# The unary plus disables the index on types. With that index, SQLite would read all artifacts of a type.
_TYPED_OUTPUTS = """
    SELECT event.execution_id, event.artifact_id FROM Event event JOIN Artifact a ON a.id = event.artifact_id
    WHERE event.type = ? AND +a.type_id IN (SELECT id FROM Type WHERE type_kind = ? AND name IN ({})) AND
    event.execution_id IN (…)"""
_PROPERTIES = """
    SELECT artifact_id, name, int_value, double_value, string_value FROM ArtifactProperty
    WHERE artifact_id IN (…) ORDER BY is_custom_property"""
_PARAMETERS = """
    SELECT execution_id, name, int_value, double_value, string_value FROM ExecutionProperty
    WHERE execution_id IN (…) ORDER BY is_custom_property"""


@dataclass(frozen=True)
class Run:
    """A run of a pipeline.

    Attributes:
      id: Number of the run's context.
      name: Run ID that was passed to TFX.
      pipeline: Name of the pipeline.
      started: Start time in seconds since the epoch.
    """

    id: int
    name: str
    pipeline: str
    started: float


@dataclass(frozen=True)
class Execution:
    """An execution of a node in a run.

    Attributes:
      id: Number of the execution.
      run: ID of the run; empty if the execution does not belong to a run.
      node: ID of the node; empty if the execution does not belong to a run.
      type: Import path of the component's class.
      state: State in ML Metadata: NEW, RUNNING, COMPLETE, CACHED, FAILED or CANCELED.
      started: Start time in seconds since the epoch.
      updated: Time of the last change in seconds since the epoch.
    """

    id: int
    run: str
    node: str
    type: str
    state: str
    started: float
    updated: float

    @property
    def succeeded(self) -> bool:
        """Whether the execution completed or was cached, so that its outputs are complete."""
        return self.state in ("COMPLETE", "CACHED")


@dataclass(frozen=True)
class Artifact:
    """An output of a node.

    Attributes:
      id: Number of the artifact.
      type: Name of the type, for example `Examples` or `Model`.
      uri: Path or URL of the artifact's folder.
      state: State in ML Metadata; LIVE if the artifact can be used.
      created: Creation time in seconds since the epoch.
      properties: Properties of the type and custom properties, without structured values.
    """

    id: int
    type: str
    uri: str
    state: str
    created: float
    properties: dict[str, Value]

    @property
    def splits(self) -> list[str]:
        """Names of the artifact's splits; empty for a type without splits."""
        names = str(self.properties.get("split_names", "")).strip("[]")
        return [name.strip().strip('"') for name in names.split(",") if name.strip()]


@dataclass(frozen=True)
class Event:
    """An execution's use of an artifact, as input or output.

    Attributes:
      execution: Number of the execution.
      artifact: Number of the artifact.
      key: Name of the component's input or output.
      kind: `INPUT` or `OUTPUT` of this module. Events of resolvers and of unfinished executions have other values.
    """

    execution: int
    artifact: int
    key: str
    kind: int


class Store:
    """A metadata store, opened for reading.

    Args:
      store: An existing SQLite file, or a database on a server. As text, a path or
        `postgresql://USER@HOST:PORT/DATABASE`; the password is in the environment variable METADATA_PASSWORD.
      copies: Folder with copies of artifacts that are in an object store. By default, the folder `artifacts` beside an
        SQLite file. The URI of an artifact that has a copy is the path of the copy.

    Raises:
      MachineError: The store does not exist or is not a metadata store. Every method also raises it if the file is
        damaged or stays locked, or if the connection to the server is lost for too long.

    Example:
      >>> store = Store("out/taxi/metadata.db")
      >>> for run in store.runs("taxi", newest=3):
      ...     print(run.name, [execution.node for execution in store.executions(run.name)])
    """

    def __init__(self, store: Location | str, copies: str | None = None) -> None:
        place = location(store) if isinstance(store, str) else store
        self._tables = Tables(place)
        self._copies = str(place.parent / "artifacts") if copies is None and isinstance(place, Path) else copies

    def runs(self, pipeline: str | None = None, newest: int | None = None, before: Run | None = None) -> list[Run]:
        """Return runs, newest first.

        Args:
          pipeline: Name of the pipeline. If None, the runs of all pipelines are returned.
          newest: Maximum number of runs. If None, the number is not limited.
          before: If not None, only runs that started before this run are returned.
        """
        condition, values = "", list[Any]()
        if pipeline is not None:
            condition, values = " AND pipeline.name = ?", [pipeline]
        if before is not None:
            started = round(before.started * 1000)
            condition += " AND run.create_time_since_epoch <= ? AND (run.create_time_since_epoch < ? OR run.id < ?)"
            values += [started, started, before.id]
        query = _BY_TIME + condition + _NEWEST + " LIMIT ?"
        limit = _ALL if newest is None else newest
        return [_make_run(row) for row in self._tables.rows(query, *self._get_run_types(), *values, limit)]

    def runs_like(self, prefix: str, pipeline: str | None = None) -> list[Run]:
        """Return the runs whose IDs begin with a prefix, newest first.

        Args:
          prefix: Prefix of the run IDs.
          pipeline: Name of the pipeline. If None, the runs of all pipelines are returned.
        """
        query = f"{_RUNS} AND {self._tables.prefix_condition('run.name')}{_NEWEST}"
        rows = self._tables.rows(query, *self._get_run_types(), *prefix_range(prefix))
        return [run for run in map(_make_run, rows) if pipeline in (None, run.pipeline)]

    def config(self, run: str) -> Any:
        """Return the config of a run as JSON values; None if it was not recorded."""
        text = self.configs([run]).get(run)
        return None if text is None else json.loads(text)

    def configs(self, runs: Iterable[str]) -> dict[str, str]:
        """Return run ID → text of the run's config. Runs without a recorded config are omitted.

        The manifest of a pushed version contains the digest of this text.
        """
        names = {run.id: run.name for run in self._find_runs_by("name", runs)}
        query = "SELECT context_id, name, string_value FROM ContextProperty WHERE context_id IN (…)"
        properties: dict[int, dict[str, str]] = {}
        for number, name, text in self._tables.rows_in(query, names):
            properties.setdefault(number, {})[name] = text or ""
        configs = ((number, recorded_config.join(parts)) for number, parts in properties.items())
        return {names[number]: text for number, text in configs if text}

    def executions(self, *runs: str) -> list[Execution]:
        """Return all executions of the runs with these IDs, oldest first. Unknown runs are ignored."""
        return self._read_executions(self._find_runs_by("name", runs))

    def execution(self, run: str, node: str) -> Execution | None:
        """Return the newest execution of a node in a run; None if the node was not executed."""
        return next((execution for execution in reversed(self.executions(run)) if execution.node == node), None)

    def executions_by_id(self, ids: Iterable[int]) -> list[Execution]:
        """Return the executions with these numbers, oldest first."""
        numbers = set(ids)
        # The tables lack an index from executions to runs. The run of an execution is the newest run that was created
        # before the execution and is associated with it.
        pairs = self._tables.rows_in(_RUN_OF, sorted(numbers), self._get_context_type(RUN_CONTEXT))
        runs = self._find_runs_by("id", {run for _, run in pairs if run is not None})
        executions = {execution.id: execution for execution in self._read_executions(runs) if execution.id in numbers}
        for number, *fields in self._tables.rows_in(_EXECUTIONS, sorted(numbers - set(executions))):
            executions[number] = _make_execution(number, "", "", *fields)
        return [executions[number] for number in sorted(executions)]

    def list_completed(self, pipeline: str, node: str, before: int, newest: int) -> list[Execution]:
        """Return the executions of a node that ran and succeeded, newest first, without cached executions.

        Args:
          pipeline: Name of the pipeline.
          node: ID of the node.
          before: Only executions with lower numbers are returned.
          newest: Maximum number of executions.
        """
        rows = self._tables.rows(
            "SELECT e.id FROM Context node JOIN Association link ON link.context_id = node.id"
            " JOIN Execution e ON e.id = link.execution_id WHERE node.type_id = ? AND node.name = ?"
            " AND link.execution_id < ? AND e.last_known_state = ? ORDER BY link.execution_id DESC LIMIT ?",
            self._get_context_type(NODE_CONTEXT),
            f"{pipeline}.{node}",
            before,
            _EXECUTION_STATES.index("COMPLETE"),
            newest,
        )
        return self.executions_by_id(number for (number,) in rows)[::-1]

    def events(self, executions: Iterable[int]) -> list[Event]:
        """Return the input and output events of executions, in the order of their recording."""
        return self._read_events(_EVENTS + " WHERE event.execution_id IN (…)", executions)

    def list_typed_outputs(self, executions: Iterable[int], types: Sequence[str]) -> list[tuple[int, int]]:
        """Return the outputs of executions that have one of several types.

        Args:
          executions: Numbers of the executions.
          types: Names of the artifact types.

        Returns:
          Pairs of execution number and artifact number, in ascending order.
        """
        query = _TYPED_OUTPUTS.format(", ".join("?" * len(types)))
        return sorted(self._tables.rows_in(query, sorted(set(executions)), OUTPUT, _ARTIFACT_KIND, *types))

    def makers(self, artifacts: Iterable[int]) -> dict[int, int]:
        """Return artifact → the execution that produced it.

        That is the first execution that published the artifact; cached executions publish it again.
        """
        return dict(self._tables.rows_in(_MAKERS, sorted(set(artifacts)), OUTPUT))

    def readers(self, artifacts: Iterable[int]) -> list[Event]:
        """Return the input events of artifacts, without cached executions, which do not read their inputs."""
        query = (
            _EVENTS + " JOIN Execution e ON e.id = event.execution_id"
            " WHERE event.type = ? AND e.last_known_state <> ? AND event.artifact_id IN (…)"
        )
        return self._read_events(query, artifacts, INPUT, _EXECUTION_STATES.index("CACHED"))

    def outputs(self, execution: Execution) -> dict[str, list[Artifact]]:
        """Return output key → artifacts that an execution produced or took from the cache."""
        events = [event for event in self.events([execution.id]) if event.kind == OUTPUT]
        artifacts = self.artifacts_by_id(event.artifact for event in events)
        outputs: dict[str, list[Artifact]] = {}
        for event in events:
            outputs.setdefault(event.key, []).append(artifacts[event.artifact])
        return outputs

    def parameters(self, executions: Iterable[int]) -> dict[int, dict[str, Value]]:
        """Return execution → name of the parameter (in TFX, exec_properties) → value."""
        return self._read_properties(_PARAMETERS, executions)

    def artifacts(self, run: str, type_name: str | None = None) -> list[Artifact]:
        """Return the outputs of the successful nodes of a run, oldest first, without the outputs of resolvers.

        Args:
          run: ID of the run.
          type_name: Type of the artifacts. If None, artifacts of all types are returned.
        """
        succeeded = {execution.id for execution in self.executions(run) if execution.succeeded}
        events = [event for event in self.events(succeeded) if event.kind == OUTPUT]
        # Sort by ID, because a partial run records the executions that it reuses in any order.
        artifacts = self.artifacts_by_id(event.artifact for event in events)
        return [artifact for artifact in artifacts.values() if type_name in (None, artifact.type)]

    def artifacts_by_id(self, ids: Iterable[int]) -> dict[int, Artifact]:
        """Return artifact number → artifact, in ascending order. Unknown numbers are omitted."""
        rows = self._tables.rows_in(_ARTIFACTS + " WHERE a.id IN (…)", sorted(set(ids)))
        return self._make_artifacts(sorted(rows, key=itemgetter(0)))

    def newest_artifacts(self, type_name: str | None = None, newest: int = _ALL) -> list[Artifact]:
        """Return the newest artifacts, newest first.

        Args:
          type_name: Type of the artifacts. If None, artifacts of all types are returned.
          newest: Maximum number of artifacts.
        """
        condition, values = (" WHERE type.name = ?", [type_name]) if type_name is not None else ("", [])
        rows = self._tables.rows(_ARTIFACTS + condition + " ORDER BY a.id DESC LIMIT ?", *values, newest)
        return list(self._make_artifacts(rows).values())

    def artifacts_with(self, type_name: str, name: str, value: str) -> list[Artifact]:
        """Return the artifacts of a type whose custom property `name` is the text `value`, oldest first."""
        query = (
            _ARTIFACTS + " JOIN ArtifactProperty p ON p.artifact_id = a.id"
            " WHERE type.name = ? AND p.name = ? AND p.is_custom_property = TRUE AND p.string_value = ? ORDER BY a.id"
        )
        return list(self._make_artifacts(self._tables.rows(query, type_name, name, value)).values())

    def artifacts_at(self, uri: str) -> list[Artifact]:
        """Return the artifacts in this folder, oldest first."""
        return list(
            self._make_artifacts(self._tables.rows(_ARTIFACTS + " WHERE a.uri = ? ORDER BY a.id", uri)).values()
        )

    def artifact_types(self) -> list[str]:
        """Return the sorted names of the artifact types in use."""
        query = "SELECT name FROM Type WHERE id IN (SELECT DISTINCT type_id FROM Artifact) ORDER BY name"
        return [name for (name,) in self._tables.rows(query)]

    def get_last_change(self) -> int:
        """Return the time of the last change of an execution in milliseconds since the epoch; 0 without executions."""
        [(newest,)] = self._tables.rows("SELECT MAX(last_update_time_since_epoch) FROM Execution")
        return int(newest or 0)

    def _read_executions(self, runs: Sequence[Run]) -> list[Execution]:
        by_context = {run.id: run for run in runs}
        rows = self._tables.rows_in(
            "SELECT link.context_id, e.id, type.name, e.last_known_state, e.create_time_since_epoch,"
            " e.last_update_time_since_epoch FROM Association link JOIN Execution e ON e.id = link.execution_id"
            " JOIN Type type ON type.id = e.type_id WHERE link.context_id IN (…)",
            by_context,
        )
        nodes = self._find_nodes({run.pipeline for run in runs}, [row[1] for row in rows])
        return sorted(
            (
                _make_execution(number, by_context[context].name, nodes.get(number, ""), *fields)
                for context, number, *fields in rows
            ),
            key=lambda execution: execution.id,
        )

    def _find_runs_by(self, column: str, keys: Iterable[Any]) -> list[Run]:
        rows = self._tables.rows_in(f"{_RUNS} AND run.{column} IN (…)", sorted(set(keys)), *self._get_run_types())
        return [_make_run(row) for row in rows]

    def _get_run_types(self) -> tuple[int, int]:
        return self._get_context_type(PIPELINE_CONTEXT), self._get_context_type(RUN_CONTEXT)

    def _get_context_type(self, name: str) -> int:
        rows = self._tables.rows("SELECT id FROM Type WHERE name = ? AND type_kind = ?", name, _CONTEXT_KIND)
        return rows[0][0] if rows else -1

    def _find_nodes(self, pipelines: Iterable[str], executions: Sequence[int]) -> dict[int, str]:
        """Return execution → node ID, from the names of the nodes' contexts, `<pipeline>.<node>`."""
        contexts = {}
        for pipeline in pipelines:
            query = f"{_NODES} AND {self._tables.prefix_condition('name')}"
            rows = self._tables.rows(query, self._get_context_type(NODE_CONTEXT), *prefix_range(f"{pipeline}."))
            contexts.update({number: name.removeprefix(f"{pipeline}.") for number, name in rows})
        nodes = {}
        for number, node in contexts.items():
            query = "SELECT execution_id FROM Association WHERE context_id = ? AND execution_id IN (…)"
            nodes.update({execution: node for (execution,) in self._tables.rows_in(query, executions, number)})
        return nodes

    def _read_events(self, query: str, numbers: Iterable[int], *values: Any) -> list[Event]:
        rows = self._tables.rows_in(query, sorted(set(numbers)), *values)
        return [Event(execution, artifact, key or "", kind) for _, execution, artifact, key, kind in sorted(rows)]

    def _find_copy(self, uri: str) -> str:
        """Return the path of an artifact's copy on this machine, or its URI if it does not have a copy."""
        if self._copies is None or not is_object_store(uri):
            return uri
        # TFX's folders: node, output, number of the execution; a value is a file in the last one.
        parts = uri.split("/")
        copy = Path(self._copies, *parts[-4 if parts[-1] == "value" else -3 :])
        return str(copy) if copy.exists() else uri

    def _make_artifacts(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, Artifact]:
        properties = self._read_properties(_PROPERTIES, [row[0] for row in rows])
        return {
            number: Artifact(
                number,
                kind,
                self._find_copy(uri or ""),
                _ARTIFACT_STATES[state or 0],
                created / 1000,
                properties[number],
            )
            for number, kind, uri, state, created in rows
        }

    def _read_properties(self, query: str, ids: Iterable[int]) -> dict[int, dict[str, Value]]:
        numbers = list(ids)
        properties: dict[int, dict[str, Value]] = {number: {} for number in numbers}
        for number, name, *values in self._tables.rows_in(query, numbers):
            for value in values:
                if value is not None and not (isinstance(value, str) and value.startswith(_STRUCTURED)):
                    properties[number][name] = value
        # Sort the properties by name, because databases return them in different orders.
        return {number: dict(sorted(by_name.items())) for number, by_name in properties.items()}


def _make_execution(
    number: int, run: str, node: str, kind: str, state: int | None, created: int, updated: int
) -> Execution:
    return Execution(number, run, node, kind, _EXECUTION_STATES[state or 0], created / 1000, updated / 1000)


def _make_run(row: tuple[Any, ...]) -> Run:
    number, name, pipeline, created = row
    return Run(number, name, pipeline or "", created / 1000)
