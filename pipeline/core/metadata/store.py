"""The read model of a metadata store: runs, executions, artifacts and events as plain records, without protobuf.

The cost of a query grows with its result, not with the number of runs: every query uses an index, and reads all items
of a list at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from components import recorded_config
from pipeline.core.metadata.location import Location, location
from pipeline.core.metadata.sql import Tables, prefix_range

Value: TypeAlias = "int | float | str"

RUN_CONTEXT = "pipeline_run"
NODE_CONTEXT = "node"
PIPELINE_CONTEXT = "pipeline"

# The numbers of metadata_store.proto: Execution.State, Artifact.State and Event.Type.
_EXECUTION_STATES = ("UNKNOWN", "NEW", "RUNNING", "COMPLETE", "FAILED", "CACHED", "CANCELED")
_ARTIFACT_STATES = ("UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE")
INPUT, OUTPUT = 3, 4
_ARTIFACT_KIND, _CONTEXT_KIND = 1, 2
_STRUCTURED = "mlmd-struct::"
"""The prefix of ML Metadata's texts of structured values."""
_RUNS = """
    SELECT run.id, run.name, pipeline.name, run.create_time_since_epoch FROM Context run
    LEFT JOIN ParentContext child ON child.context_id = run.id
    LEFT JOIN Context pipeline ON pipeline.id = child.parent_context_id AND pipeline.type_id = ?
    WHERE run.type_id = ? AND (child.context_id IS NULL OR pipeline.id IS NOT NULL)"""
# The unary plus keeps SQLite from sorting all runs: with the index of times it stops when the list is full.
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
"""A limit that no store reaches."""
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
# The unary plus keeps SQLite from reading all artifacts of a type.
_MADE = """
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
      id: number of the run's context.
      name: the run id that was passed to TFX.
      pipeline: the pipeline's name.
      started: seconds since the epoch.
    """

    id: int
    name: str
    pipeline: str
    started: float


@dataclass(frozen=True)
class Execution:
    """One node in one run.

    Attributes:
      id: its number.
      run: the id of the run; empty if it belongs to no run.
      node: the id of the node; empty if it belongs to no run.
      type: the import path of the component's class.
      state: of ML Metadata: NEW, RUNNING, COMPLETE, CACHED, FAILED or CANCELED.
      started: seconds since the epoch.
      updated: time of the last change, in seconds since the epoch.
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
        """Whether it completed or was cached, so that its outputs are complete."""
        return self.state in ("COMPLETE", "CACHED")


@dataclass(frozen=True)
class Artifact:
    """An output of a node.

    Attributes:
      id: its number.
      type: `Examples`, `Model` and so on.
      uri: its folder.
      state: of ML Metadata; LIVE if it can be used.
      created: seconds since the epoch.
      properties: the type's properties and the custom ones together, without structured values.
    """

    id: int
    type: str
    uri: str
    state: str
    created: float
    properties: dict[str, Value]

    @property
    def splits(self) -> list[str]:
        """The names of its splits; empty for a type without splits."""
        names = str(self.properties.get("split_names", "")).strip("[]")
        return [name.strip().strip('"') for name in names.split(",") if name.strip()]


@dataclass(frozen=True)
class Event:
    """An execution's use of an artifact, as input or output.

    Attributes:
      execution: number of the execution.
      artifact: number of the artifact.
      key: of the component's input or output.
      kind: `INPUT` or `OUTPUT` of this module; events of resolvers and of unfinished executions have other numbers.
    """

    execution: int
    artifact: int
    key: str
    kind: int


class Store:
    """A metadata store, opened for reading.

    Args:
      store: an SQLite file that exists, or a database on a server; as text, a path or
        `postgresql://USER@HOST:PORT/DATABASE`, with the password in the environment variable METADATA_PASSWORD.

    Raises:
      MachineError: the store is missing, or no store; also by each method, if the file is damaged or stays locked, or
        the server cannot be reached again.
    """

    def __init__(self, store: Location | str) -> None:
        self._tables = Tables(location(store) if isinstance(store, str) else store)

    def runs(self, pipeline: str | None = None, newest: int | None = None, before: Run | None = None) -> list[Run]:
        """Returns runs, newest first.

        Args:
          pipeline: only the runs of this pipeline; None: of all.
          newest: the maximum number of runs; None: no maximum.
          before: only runs that started before this one.
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
        return [_run(row) for row in self._tables.rows(query, *self._run_types(), *values, limit)]

    def runs_like(self, prefix: str, pipeline: str | None = None) -> list[Run]:
        """Returns the runs of one pipeline or of all whose ids begin with a prefix, newest first."""
        query = f"{_RUNS} AND {self._tables.prefix_condition('run.name')}{_NEWEST}"
        rows = self._tables.rows(query, *self._run_types(), *prefix_range(prefix))
        return [run for run in map(_run, rows) if pipeline in (None, run.pipeline)]

    def config(self, run: str) -> Any:
        """Returns the config of a run as JSON values; None where it was not recorded."""
        text = self.configs([run]).get(run)
        return None if text is None else json.loads(text)

    def configs(self, runs: Iterable[str]) -> dict[str, str]:
        """Returns run → the text of its config, where it was recorded; a version's manifest has the text's digest."""
        names = {run.id: run.name for run in self._runs_by("name", runs)}
        query = "SELECT context_id, name, string_value FROM ContextProperty WHERE context_id IN (…)"
        properties: dict[int, dict[str, str]] = {}
        for number, name, text in self._tables.rows_in(query, names):
            properties.setdefault(number, {})[name] = text or ""
        configs = ((number, recorded_config.joined(each)) for number, each in properties.items())
        return {names[number]: text for number, text in configs if text}

    def executions(self, *runs: str) -> list[Execution]:
        """Returns all executions of runs with these ids, oldest first; an unknown run has none."""
        return self._executions(self._runs_by("name", runs))

    def execution(self, run: str, node: str) -> Execution | None:
        """Returns the newest execution of a node in a run; None if the node was not executed."""
        return next((each for each in reversed(self.executions(run)) if each.node == node), None)

    def executions_by_id(self, ids: Iterable[int]) -> list[Execution]:
        """Returns the executions with these numbers, oldest first; without run and node if they belong to no run."""
        numbers = set(ids)
        # No index leads from an execution to its run; its run is the last of its contexts that was created before it.
        pairs = self._tables.rows_in(_RUN_OF, sorted(numbers), self._context_type(RUN_CONTEXT))
        runs = self._runs_by("id", {run for _, run in pairs if run is not None})
        executions = {each.id: each for each in self._executions(runs) if each.id in numbers}
        for number, *fields in self._tables.rows_in(_EXECUTIONS, sorted(numbers - set(executions))):
            executions[number] = _execution(number, "", "", *fields)
        return [executions[number] for number in sorted(executions)]

    def completed(self, pipeline: str, node: str, before: int, newest: int) -> list[Execution]:
        """Returns executions of a node that were executed and succeeded, newest first; without cached ones.

        Args:
          pipeline: the pipeline's name.
          node: the node's id.
          before: only executions with lower numbers.
          newest: the maximum number of executions.
        """
        rows = self._tables.rows(
            "SELECT e.id FROM Context node JOIN Association link ON link.context_id = node.id"
            " JOIN Execution e ON e.id = link.execution_id WHERE node.type_id = ? AND node.name = ?"
            " AND link.execution_id < ? AND e.last_known_state = ? ORDER BY link.execution_id DESC LIMIT ?",
            self._context_type(NODE_CONTEXT),
            f"{pipeline}.{node}",
            before,
            _EXECUTION_STATES.index("COMPLETE"),
            newest,
        )
        return self.executions_by_id(number for (number,) in rows)[::-1]

    def events(self, executions: Iterable[int]) -> list[Event]:
        """Returns the inputs and outputs of executions, in the order in which they were recorded."""
        return self._events(_EVENTS + " WHERE event.execution_id IN (…)", executions)

    def made(self, executions: Iterable[int], types: Sequence[str]) -> list[tuple[int, int]]:
        """Returns (execution, artifact) of all outputs of executions that have one of these types, oldest first."""
        query = _MADE.format(", ".join("?" * len(types)))
        return sorted(self._tables.rows_in(query, sorted(set(executions)), OUTPUT, _ARTIFACT_KIND, *types))

    def makers(self, artifacts: Iterable[int]) -> dict[int, int]:
        """Returns artifact → the execution that made it: the first that published it; cached ones publish it again."""
        return dict(self._tables.rows_in(_MAKERS, sorted(set(artifacts)), OUTPUT))

    def readers(self, artifacts: Iterable[int]) -> list[Event]:
        """Returns the events of executions that read artifacts; cached executions read nothing and are omitted."""
        query = (
            _EVENTS + " JOIN Execution e ON e.id = event.execution_id"
            " WHERE event.type = ? AND e.last_known_state <> ? AND event.artifact_id IN (…)"
        )
        return self._events(query, artifacts, INPUT, _EXECUTION_STATES.index("CACHED"))

    def outputs(self, execution: Execution) -> dict[str, list[Artifact]]:
        """Returns output key → artifacts of an execution, which made them or took them from the cache."""
        events = [event for event in self.events([execution.id]) if event.kind == OUTPUT]
        artifacts = self.artifacts_by_id(event.artifact for event in events)
        outputs: dict[str, list[Artifact]] = {}
        for event in events:
            outputs.setdefault(event.key, []).append(artifacts[event.artifact])
        return outputs

    def parameters(self, executions: Iterable[int]) -> dict[int, dict[str, Value]]:
        """Returns execution → its parameters (TFX's exec_properties) by name."""
        return self._properties(_PARAMETERS, executions)

    def artifacts(self, run: str, type_name: str | None = None) -> list[Artifact]:
        """Returns the outputs of a run's successful nodes, of one type or all, oldest first; without resolvers'."""
        succeeded = {each.id for each in self.executions(run) if each.succeeded}
        events = [event for event in self.events(succeeded) if event.kind == OUTPUT]
        # By id: a partial run records the executions that it reuses in any order.
        artifacts = self.artifacts_by_id(event.artifact for event in events)
        return [artifact for artifact in artifacts.values() if type_name in (None, artifact.type)]

    def artifacts_by_id(self, ids: Iterable[int]) -> dict[int, Artifact]:
        """Returns number → artifact, in the order of the numbers; unknown numbers are omitted."""
        rows = self._tables.rows_in(_ARTIFACTS + " WHERE a.id IN (…)", sorted(set(ids)))
        return self._artifacts(sorted(rows, key=itemgetter(0)))

    def newest_artifacts(self, type_name: str | None = None, newest: int = _ALL) -> list[Artifact]:
        """Returns at most `newest` artifacts of one type or of all, newest first."""
        condition, values = (" WHERE type.name = ?", [type_name]) if type_name is not None else ("", [])
        rows = self._tables.rows(_ARTIFACTS + condition + " ORDER BY a.id DESC LIMIT ?", *values, newest)
        return list(self._artifacts(rows).values())

    def artifacts_with(self, type_name: str, name: str, value: str) -> list[Artifact]:
        """Returns the artifacts of a type whose custom property `name` has the text `value`, oldest first."""
        query = (
            _ARTIFACTS + " JOIN ArtifactProperty p ON p.artifact_id = a.id"
            " WHERE type.name = ? AND p.name = ? AND p.is_custom_property = TRUE AND p.string_value = ? ORDER BY a.id"
        )
        return list(self._artifacts(self._tables.rows(query, type_name, name, value)).values())

    def artifacts_at(self, uri: str) -> list[Artifact]:
        """Returns the artifacts with this folder, oldest first."""
        return list(self._artifacts(self._tables.rows(_ARTIFACTS + " WHERE a.uri = ? ORDER BY a.id", uri)).values())

    def artifact_types(self) -> list[str]:
        """Returns the names of the types that have artifacts, sorted."""
        query = "SELECT name FROM Type WHERE id IN (SELECT DISTINCT type_id FROM Artifact) ORDER BY name"
        return [name for (name,) in self._tables.rows(query)]

    def changed(self) -> int:
        """Returns the time of the last change of an execution, in milliseconds since the epoch; 0 without any."""
        [(newest,)] = self._tables.rows("SELECT MAX(last_update_time_since_epoch) FROM Execution")
        return int(newest or 0)

    def _executions(self, runs: Sequence[Run]) -> list[Execution]:
        by_context = {run.id: run for run in runs}
        rows = self._tables.rows_in(
            "SELECT link.context_id, e.id, type.name, e.last_known_state, e.create_time_since_epoch,"
            " e.last_update_time_since_epoch FROM Association link JOIN Execution e ON e.id = link.execution_id"
            " JOIN Type type ON type.id = e.type_id WHERE link.context_id IN (…)",
            by_context,
        )
        nodes = self._nodes({run.pipeline for run in runs}, [row[1] for row in rows])
        return sorted(
            (
                _execution(number, by_context[context].name, nodes.get(number, ""), *fields)
                for context, number, *fields in rows
            ),
            key=lambda execution: execution.id,
        )

    def _runs_by(self, column: str, keys: Iterable[Any]) -> list[Run]:
        rows = self._tables.rows_in(f"{_RUNS} AND run.{column} IN (…)", sorted(set(keys)), *self._run_types())
        return [_run(row) for row in rows]

    def _run_types(self) -> tuple[int, int]:
        return self._context_type(PIPELINE_CONTEXT), self._context_type(RUN_CONTEXT)

    def _context_type(self, name: str) -> int:
        rows = self._tables.rows("SELECT id FROM Type WHERE name = ? AND type_kind = ?", name, _CONTEXT_KIND)
        return rows[0][0] if rows else -1

    def _nodes(self, pipelines: Iterable[str], executions: Sequence[int]) -> dict[int, str]:
        """Returns execution → its node; a node's context is named `<pipeline>.<node>`."""
        contexts = {}
        for pipeline in pipelines:
            query = f"{_NODES} AND {self._tables.prefix_condition('name')}"
            rows = self._tables.rows(query, self._context_type(NODE_CONTEXT), *prefix_range(f"{pipeline}."))
            contexts.update({number: name.removeprefix(f"{pipeline}.") for number, name in rows})
        nodes = {}
        for number, node in contexts.items():
            query = "SELECT execution_id FROM Association WHERE context_id = ? AND execution_id IN (…)"
            nodes.update({execution: node for (execution,) in self._tables.rows_in(query, executions, number)})
        return nodes

    def _events(self, query: str, numbers: Iterable[int], *values: Any) -> list[Event]:
        rows = self._tables.rows_in(query, sorted(set(numbers)), *values)
        return [Event(execution, artifact, key or "", kind) for _, execution, artifact, key, kind in sorted(rows)]

    def _artifacts(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, Artifact]:
        properties = self._properties(_PROPERTIES, [row[0] for row in rows])
        return {
            number: Artifact(number, kind, uri or "", _ARTIFACT_STATES[state or 0], created / 1000, properties[number])
            for number, kind, uri, state, created in rows
        }

    def _properties(self, query: str, ids: Iterable[int]) -> dict[int, dict[str, Value]]:
        numbers = list(ids)
        properties: dict[int, dict[str, Value]] = {number: {} for number in numbers}
        for number, name, *values in self._tables.rows_in(query, numbers):
            for value in values:
                if value is not None and not (isinstance(value, str) and value.startswith(_STRUCTURED)):
                    properties[number][name] = value
        # Databases return them in different orders.
        return {number: dict(sorted(by_name.items())) for number, by_name in properties.items()}


def _execution(number: int, run: str, node: str, kind: str, state: int | None, created: int, updated: int) -> Execution:
    return Execution(number, run, node, kind, _EXECUTION_STATES[state or 0], created / 1000, updated / 1000)


def _run(row: tuple[Any, ...]) -> Run:
    number, name, pipeline, created = row
    return Run(number, name, pipeline or "", created / 1000)
