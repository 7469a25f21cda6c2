"""Runs, executions and artifacts of a metadata store, as small records that need no protobuf to understand.

Whatever is asked costs as much as the answer is long, however many runs there are: everything goes by an index, and
for all of a list at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from pipeline.metadata.database import Location, location
from pipeline.metadata.tables import Tables, span

Value: TypeAlias = "int | float | str"

RUN_CONTEXT = "pipeline_run"
NODE_CONTEXT = "node"
PIPELINE_CONTEXT = "pipeline"

# Numbers of ml_metadata.proto (MetadataStore's Execution.State, Artifact.State and Event.Type).
_EXECUTION_STATES = ("UNKNOWN", "NEW", "RUNNING", "COMPLETE", "FAILED", "CACHED", "CANCELED")
_ARTIFACT_STATES = ("UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE")
INPUT, OUTPUT = 3, 4
_ARTIFACT_KIND, _CONTEXT_KIND = 1, 2
_STRUCTURED = "mlmd-struct::"
"""How ML Metadata's texts of structured values begin."""
_RUNS = """
    SELECT run.id, run.name, pipeline.name, run.create_time_since_epoch FROM Context run
    LEFT JOIN ParentContext child ON child.context_id = run.id
    LEFT JOIN Context pipeline ON pipeline.id = child.parent_context_id AND pipeline.type_id = ?
    WHERE run.type_id = ? AND (child.context_id IS NULL OR pipeline.id IS NOT NULL)"""
# The sign keeps SQLite from sorting all runs: by the index of times it stops where the list is full.
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
"""More than there are."""
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
# The sign keeps SQLite from going through all artifacts of a type.
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
      id: of its context.
      name: the run id that TFX was given.
      pipeline: its name.
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
      run: the id of the run.
      node: the id of the node.
      type: of the component, as Python names its class.
      state: ML Metadata's own word: NEW, RUNNING, COMPLETE, CACHED, FAILED or CANCELED.
      started: seconds since the epoch.
      updated: the same.
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
        """Whether its outputs can be relied upon."""
        return self.state in ("COMPLETE", "CACHED")


@dataclass(frozen=True)
class Artifact:
    """Something a node made: where it lies, and what is known about it.

    Attributes:
      id: its number.
      type: `Examples`, `Model` and so on.
      uri: its folder.
      state: ML Metadata's own word; LIVE, if it can be used.
      created: seconds since the epoch.
      properties: the type's own and the custom ones, together; structured ones stay away.
    """

    id: int
    type: str
    uri: str
    state: str
    created: float
    properties: dict[str, Value]

    @property
    def splits(self) -> list[str]:
        """The names of its splits, for a type that has them."""
        names = str(self.properties.get("split_names", "")).strip("[]")
        return [name.strip().strip('"') for name in names.split(",") if name.strip()]


@dataclass(frozen=True)
class Event:
    """That an execution read an artifact, or published it.

    Attributes:
      execution: its number.
      artifact: its number.
      key: of the component's input or output.
      kind: `INPUT` or `OUTPUT` of this module; a resolver's and unfinished ones have other numbers.
    """

    execution: int
    artifact: int
    key: str
    kind: int


class Store:
    """A metadata store, opened for reading.

    Args:
      place: an SQLite file that exists, or a database on a server; as text, a path or
        `postgresql://user@host:port/database`, the password being in the environment's METADATA_PASSWORD.

    Raises:
      MachineError: it is not there, or no store; also by each method, if the file is damaged or stays locked, or the
        server does not come back.
    """

    def __init__(self, place: Location | str) -> None:
        self._tables = Tables(location(place) if isinstance(place, str) else place)

    def runs(self, pipeline: str | None = None, newest: int | None = None, before: Run | None = None) -> list[Run]:
        """The runs of one pipeline or of all, newest first; no more than asked for, and all `before` one of them."""
        which, values = "", list[Any]()
        if pipeline is not None:
            which, values = " AND pipeline.name = ?", [pipeline]
        if before is not None:
            started = round(before.started * 1000)
            which += " AND run.create_time_since_epoch <= ? AND (run.create_time_since_epoch < ? OR run.id < ?)"
            values += [started, started, before.id]
        question = _BY_TIME + which + _NEWEST + " LIMIT ?"
        limit = _ALL if newest is None else newest
        return [_run(row) for row in self._tables.rows(question, *self._run_types(), *values, limit)]

    def runs_like(self, beginning: str, pipeline: str | None = None) -> list[Run]:
        """The runs whose ids begin so, newest first."""
        question = f"{_RUNS} AND {self._tables.beginning('run.name')}{_NEWEST}"
        found = self._tables.rows(question, *self._run_types(), *span(beginning))
        return [run for run in map(_run, found) if pipeline in (None, run.pipeline)]

    def config(self, run: str) -> Any:
        """The config that a run was made with, as JSON values; None where nobody has written it down."""
        told = self.configs([run]).get(run)
        return None if told is None else json.loads(told)

    def configs(self, runs: Iterable[str]) -> dict[str, str]:
        """Run → the text of its config, for those that have one; the manifest of a pushed version has its digest."""
        names = {run.id: run.name for run in self._runs_among("name", runs)}
        question = "SELECT context_id, string_value FROM ContextProperty WHERE name = 'config' AND context_id IN (…)"
        return {names[number]: text for number, text in self._tables.among(question, names) if text}

    def executions(self, *runs: str) -> list[Execution]:
        """All executions of some runs, by their ids, oldest first; none of a run that is not there."""
        return self._executions(self._runs_among("name", runs))

    def execution(self, run: str, node: str) -> Execution | None:
        """The newest execution of a node in a run, if there is one."""
        return next((each for each in reversed(self.executions(run)) if each.node == node), None)

    def executions_by_id(self, ids: Iterable[int]) -> list[Execution]:
        """Executions by their numbers, oldest first; one of no run has no node, and its type tells what it was."""
        wanted = set(ids)
        # No index leads from an execution to its run, but its run is one of those that had begun just before.
        found = self._tables.among(_RUN_OF, sorted(wanted), self._context_type(RUN_CONTEXT))
        runs = self._runs_among("id", {run for _, run in found if run is not None})
        several = {each.id: each for each in self._executions(runs) if each.id in wanted}
        for number, *told in self._tables.among(_EXECUTIONS, sorted(wanted - set(several))):
            several[number] = _execution(number, "", "", *told)
        return [several[number] for number in sorted(several)]

    def completed(self, pipeline: str, node: str, before: int, newest: int) -> list[Execution]:
        """The executions of a node that really ran and ended well, with lower numbers; newest first."""
        found = self._tables.rows(
            "SELECT e.id FROM Context node JOIN Association link ON link.context_id = node.id"
            " JOIN Execution e ON e.id = link.execution_id WHERE node.type_id = ? AND node.name = ?"
            " AND link.execution_id < ? AND e.last_known_state = ? ORDER BY link.execution_id DESC LIMIT ?",
            self._context_type(NODE_CONTEXT),
            f"{pipeline}.{node}",
            before,
            _EXECUTION_STATES.index("COMPLETE"),
            newest,
        )
        return self.executions_by_id(number for (number,) in found)[::-1]

    def events(self, executions: Iterable[int]) -> list[Event]:
        """What some executions read and published, in the order in which it was entered."""
        return self._events(_EVENTS + " WHERE event.execution_id IN (…)", executions)

    def made(self, executions: Iterable[int], types: Sequence[str]) -> list[tuple[int, int]]:
        """The execution and the artifact of all that some executions published of these types, oldest first."""
        question = _MADE.format(", ".join("?" * len(types)))
        return sorted(self._tables.among(question, sorted(set(executions)), OUTPUT, _ARTIFACT_KIND, *types))

    def makers(self, artifacts: Iterable[int]) -> dict[int, int]:
        """Artifact → the execution that made it; those that found it in the cache have published it later."""
        return dict(self._tables.among(_MAKERS, sorted(set(artifacts)), OUTPUT))

    def readers(self, artifacts: Iterable[int]) -> list[Event]:
        """Who read some artifacts, and did not find its own outputs in the cache."""
        question = (
            _EVENTS + " JOIN Execution e ON e.id = event.execution_id"
            " WHERE event.type = ? AND e.last_known_state <> ? AND event.artifact_id IN (…)"
        )
        return self._events(question, artifacts, INPUT, _EXECUTION_STATES.index("CACHED"))

    def outputs(self, execution: Execution) -> dict[str, list[Artifact]]:
        """What an execution published (or took from the cache), by output key."""
        events = [event for event in self.events([execution.id]) if event.kind == OUTPUT]
        artifacts = self.artifacts_by_id(event.artifact for event in events)
        found: dict[str, list[Artifact]] = {}
        for event in events:
            found.setdefault(event.key, []).append(artifacts[event.artifact])
        return found

    def parameters(self, executions: Iterable[int]) -> dict[int, dict[str, Value]]:
        """The parameters (TFX's exec_properties) of some executions, each by its number."""
        return self._properties(_PARAMETERS, executions)

    def artifacts(self, run: str, type_name: str | None = None) -> list[Artifact]:
        """What the run's own successful nodes made, of one type or all, oldest first; without what resolvers found."""
        made = {each.id for each in self.executions(run) if each.succeeded}
        events = [event for event in self.events(made) if event.kind == OUTPUT]
        # By id: a partial run enters the executions that it reuses in any order.
        found = self.artifacts_by_id(event.artifact for event in events)
        return [artifact for artifact in found.values() if type_name in (None, artifact.type)]

    def artifacts_by_id(self, ids: Iterable[int]) -> dict[int, Artifact]:
        """Artifacts by their numbers, in that order; what is not there is left out."""
        found = self._tables.among(_ARTIFACTS + " WHERE a.id IN (…)", sorted(set(ids)))
        return self._artifacts(sorted(found, key=itemgetter(0)))

    def newest_artifacts(self, type_name: str | None = None, newest: int = _ALL) -> list[Artifact]:
        """The artifacts of one type or of all, newest first, and no more than asked for."""
        which, values = (" WHERE type.name = ?", [type_name]) if type_name is not None else ("", [])
        found = self._tables.rows(_ARTIFACTS + which + " ORDER BY a.id DESC LIMIT ?", *values, newest)
        return list(self._artifacts(found).values())

    def artifacts_with(self, type_name: str, name: str, value: str) -> list[Artifact]:
        """The artifacts of a type with a text in a property, oldest first."""
        question = (
            _ARTIFACTS + " JOIN ArtifactProperty p ON p.artifact_id = a.id"
            " WHERE type.name = ? AND p.name = ? AND p.is_custom_property = TRUE AND p.string_value = ? ORDER BY a.id"
        )
        return list(self._artifacts(self._tables.rows(question, type_name, name, value)).values())

    def artifacts_at(self, uri: str) -> list[Artifact]:
        """The artifacts in a folder, oldest first."""
        return list(self._artifacts(self._tables.rows(_ARTIFACTS + " WHERE a.uri = ? ORDER BY a.id", uri)).values())

    def artifact_types(self) -> list[str]:
        """The types of which there are artifacts, by name."""
        question = "SELECT name FROM Type WHERE id IN (SELECT DISTINCT type_id FROM Artifact) ORDER BY name"
        return [name for (name,) in self._tables.rows(question)]

    def changed(self) -> int:
        """When an execution was last changed, in milliseconds since the epoch; 0: there is none."""
        [(newest,)] = self._tables.rows("SELECT MAX(last_update_time_since_epoch) FROM Execution")
        return int(newest or 0)

    def _executions(self, runs: Sequence[Run]) -> list[Execution]:
        by_context = {run.id: run for run in runs}
        found = self._tables.among(
            "SELECT link.context_id, e.id, type.name, e.last_known_state, e.create_time_since_epoch,"
            " e.last_update_time_since_epoch FROM Association link JOIN Execution e ON e.id = link.execution_id"
            " JOIN Type type ON type.id = e.type_id WHERE link.context_id IN (…)",
            by_context,
        )
        nodes = self._nodes({run.pipeline for run in runs}, [row[1] for row in found])
        return sorted(
            (
                _execution(number, by_context[context].name, nodes.get(number, ""), *told)
                for context, number, *told in found
            ),
            key=lambda execution: execution.id,
        )

    def _runs_among(self, column: str, keys: Iterable[Any]) -> list[Run]:
        found = self._tables.among(f"{_RUNS} AND run.{column} IN (…)", sorted(set(keys)), *self._run_types())
        return [_run(row) for row in found]

    def _run_types(self) -> tuple[int, int]:
        return self._context_type(PIPELINE_CONTEXT), self._context_type(RUN_CONTEXT)

    def _context_type(self, name: str) -> int:
        found = self._tables.rows("SELECT id FROM Type WHERE name = ? AND type_kind = ?", name, _CONTEXT_KIND)
        return found[0][0] if found else -1

    def _nodes(self, pipelines: Iterable[str], executions: Sequence[int]) -> dict[int, str]:
        """Execution → its node; a node's context is called `<pipeline>.<node>`."""
        contexts = {}
        for pipeline in pipelines:
            question = f"{_NODES} AND {self._tables.beginning('name')}"
            found = self._tables.rows(question, self._context_type(NODE_CONTEXT), *span(f"{pipeline}."))
            contexts.update({number: name.removeprefix(f"{pipeline}.") for number, name in found})
        nodes = {}
        for number, node in contexts.items():
            question = "SELECT execution_id FROM Association WHERE context_id = ? AND execution_id IN (…)"
            nodes.update({execution: node for (execution,) in self._tables.among(question, executions, number)})
        return nodes

    def _events(self, question: str, numbers: Iterable[int], *values: Any) -> list[Event]:
        found = self._tables.among(question, sorted(set(numbers)), *values)
        return [Event(execution, artifact, key or "", kind) for _, execution, artifact, key, kind in sorted(found)]

    def _artifacts(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, Artifact]:
        properties = self._properties(_PROPERTIES, [row[0] for row in rows])
        return {
            number: Artifact(number, kind, uri or "", _ARTIFACT_STATES[state or 0], created / 1000, properties[number])
            for number, kind, uri, state, created in rows
        }

    def _properties(self, question: str, ids: Iterable[int]) -> dict[int, dict[str, Value]]:
        wanted = list(ids)
        values: dict[int, dict[str, Value]] = {number: {} for number in wanted}
        for number, name, *several in self._tables.among(question, wanted):
            for value in several:
                if value is not None and not (isinstance(value, str) and value.startswith(_STRUCTURED)):
                    values[number][name] = value
        # In whatever order a database has them.
        return {number: dict(sorted(told.items())) for number, told in values.items()}


def _execution(number: int, run: str, node: str, kind: str, state: int | None, created: int, updated: int) -> Execution:
    return Execution(number, run, node, kind, _EXECUTION_STATES[state or 0], created / 1000, updated / 1000)


def _run(row: tuple[Any, ...]) -> Run:
    number, name, pipeline, created = row
    return Run(number, name, pipeline or "", created / 1000)
