"""PostgreSQL and MariaDB give the same answers as SQLite: the read model, the verbs, parallel runs."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.metadata_store.metadata_store import downgrade_schema
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import InputError, MachineError
from pipeline.authoring.preflight import check_store
from pipeline.core.metadata.connection import connect, from_ir, make_connection_config, to_ir
from pipeline.core.metadata.location import Database
from pipeline.core.metadata.maintenance import copy, migrate
from pipeline.core.metadata.store import Store
from pipeline.inspection import lineage
from pipeline.inspection.report.live_pages import Pages
from pipeline.registry import approval
from tests.support.runs.command import light_command
from tests.support.runs.store_writer import Writer, read_side_by_side, take_barrier, write_side_by_side
from tests.support.runs.stored_history import History, write_history
from tests.support.runs.toy_runs import result_of_toy, start_toy
from tests.support.runs.waiting_run import write_waiting_run
from tests.support.servers.databases import PASSWORD, Server

pytestmark = pytest.mark.both_lines

QUESTIONS: dict[str, Callable[[Store], Any]] = {
    "runs": lambda store: store.runs("toy"),
    "the newest run": lambda store: store.runs(newest=1),
    "runs before one": lambda store: store.runs(before=store.runs()[1]),
    "runs that begin so": lambda store: [store.runs_like("r"), store.runs_like("r2"), store.runs_like("R")],
    "configs": lambda store: store.configs(["r1", "r3"]),
    "executions": lambda store: store.executions("r1", "r2", "r3"),
    "executions by number": lambda store: store.executions_by_id(range(1, 20)),
    "completed executions": lambda store: store.list_completed("toy", "Trainer", 10**6, 2),
    "events": lambda store: store.events(range(1, 20)),
    "makers": lambda store: store.makers(range(1, 20)),
    "readers": lambda store: store.readers(range(1, 20)),
    "outputs": lambda store: [store.outputs(execution) for execution in store.executions("r1")],
    "parameters": lambda store: store.parameters(range(1, 20)),
    "artifacts of a run": lambda store: store.artifacts("r2"),
    "artifacts": lambda store: store.newest_artifacts(),
    "artifacts of a type": lambda store: store.newest_artifacts("Model", 2),
    "artifacts by property": lambda store: store.artifacts_with("PushedModel", "pushed_version", "12"),
    "artifacts in a folder": lambda store: [store.artifacts_at(artifact.uri) for artifact in store.newest_artifacts()],
    "types": lambda store: store.artifact_types(),
    "lineage": lambda store: lineage.trace(store, store.newest_artifacts("PushedModel")[0].id),
}
VERBS = (
    "runs",
    "runs show r2",
    "runs compare r1 r3",
    "runs why-not-cached Trainer",
    "store artifacts",
    "store lineage 12",
    "store export",
)


@pytest.fixture(scope="module")
def histories(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[History, History]:
    """Return the same history in a file and on the server."""
    folder = tmp_path_factory.mktemp("history")
    return write_history(folder), write_history(folder, server.add("history"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_same_answers(histories: tuple[History, History], question: str):
    in_file, on_server = (_plain(QUESTIONS[question](history.store)) for history in histories)
    assert in_file
    assert on_server == in_file


def test_copy_in_a_file_gives_them_too(histories: tuple[History, History], tmp_path: Path):
    copy(histories[1].location, tmp_path / "copy.db")
    copied = Store(tmp_path / "copy.db")
    for question in QUESTIONS.values():
        # The copy also keeps the times of the original.
        assert question(copied) == question(histories[1].store)


@pytest.mark.parametrize("verb", VERBS)
def test_same_words(histories: tuple[History, History], verb: str):
    in_file, on_server = (
        light_command(*verb.split(), "--json", "--store", str(history.location)) for history in histories
    )
    if in_file.exit_code == 2 and "--json" in in_file.err:
        in_file, on_server = (light_command(*verb.split(), "--store", str(history.location)) for history in histories)
    assert (in_file.exit_code, in_file.err) == (0, "")
    assert (on_server.exit_code, on_server.err) == (0, "")
    texts = [
        ended.out.replace(json.dumps(str(history.location)), '"STORE"')
        for ended, history in zip((in_file, on_server), histories, strict=True)
    ]
    assert _timeless(texts[1]) == _timeless(texts[0])


def test_pages_on_runs_are_served_from_it(server: Server, tmp_path: Path):
    server.renew()
    pages = Pages(server.location, tmp_path / "logs", None)
    assert pages.respond("/").status == 200
    writer = Writer(server.location)
    seen = set()
    for run in ("first", "second"):
        writer.execution(run, "Trainer")
        # The list is rebuilt only after an interval, to save the machine's time.
        later = Pages(server.location, tmp_path / "logs", None)
        listed = later.respond("/")
        assert run in listed.body.decode()
        assert later.respond("/", listed.tag).status == 304
        seen.add(listed.tag)
        assert "Trainer" in pages.respond(f"/run/{run}/").body.decode()
        assert Store(server.location).get_last_change() == round(
            Store(server.location).executions(run)[0].updated * 1000
        )
    assert len(seen) == 2


def test_approval_of_a_push_is_recorded_in_it(server: Server, tmp_path: Path):
    server.renew()
    waiting = write_waiting_run(tmp_path, location=server.location)
    store = Store(server.location)
    [run] = store.runs("small")
    note = "größer, 東京 'quoted' \\ \"twice\""
    approved = approval.approve(server.location, store, run, "Ana Díaz", note)
    again = approval.approve(server.location, store, run, "Eve", "me too")
    assert (approved.is_new, again.is_new) == (True, False)
    assert again.approval == approved.approval
    assert [int(path.name) for path in waiting.versions] == [approved.version] == [again.version]
    assert approval.list_pending(store, "small") == []
    execution = store.execution("r1", "Approval")
    assert execution is not None
    assert (execution.state, store.parameters([execution.id])[execution.id]["approval_note"]) == ("COMPLETE", note)
    pusher = store.execution("r1", "Pusher")
    assert pusher is not None
    [pushed] = store.outputs(pusher)["pushed_model"]
    assert (pushed.properties["pushed"], pushed.properties["approved_by"]) == (1, "Ana Díaz")


def test_any_text_comes_back_as_it_was(server: Server):
    server.renew()
    texts = ["Grüße, 東京 🚕", "a'b\"c\\d", "100 % ?", "line\nbreak\ttab", "x" * 100_000]
    writer = Writer(server.location, "odd%_name")
    for number, text in enumerate(texts):
        artifact = writer.artifact("Model", f"/models/{text[:200]}", name_of=text)
        writer.execution(f"run %_{number}", f"Node{number}", outputs=[artifact], parameters={"text": text})
    store = Store(server.location)
    assert [artifact.properties["name_of"] for artifact in store.newest_artifacts()][::-1] == texts
    assert [artifact.uri for artifact in store.newest_artifacts()][::-1] == [f"/models/{text[:200]}" for text in texts]
    runs = [run.name for run in store.runs_like("run %_")]
    assert sorted(runs) == [f"run %_{number}" for number in range(len(texts))]
    assert store.runs_like("run _%") == []
    parameters = store.parameters(execution.id for execution in store.executions(*runs))
    assert sorted(value["text"] for value in parameters.values()) == sorted(texts)
    assert [execution.node for execution in store.executions("run %_0")] == ["Node0"]


def test_rows_are_returned_in_the_order_of_the_requested_ids(server: Server):
    # TFX relies on this order to pair a cached node's outputs with their names.
    server.renew()
    writer = Writer(server.location)
    artifacts = [writer.artifact("Model", f"/{number}") for number in range(4)]
    executions = [
        writer.execution(f"r{number}", "Node", outputs=[artifact]) for number, artifact in enumerate(artifacts)
    ]
    for artifact in artifacts[:2]:
        artifact.state = proto.Artifact.DELETED
        writer.store.put_artifacts([artifact])
    [first] = writer.store.get_executions_by_id(executions[:1])
    first.last_known_state = proto.Execution.FAILED
    writer.store.put_executions([first])
    ids = [artifacts[number].id for number in (2, 0, 3, 1)]
    assert [artifact.id for artifact in writer.store.get_artifacts_by_id(ids)] == ids
    assert [execution.id for execution in writer.store.get_executions_by_id(executions[::-1])] == executions[::-1]
    assert [artifact.id for artifact in writer.store.get_artifacts()] == sorted(ids)
    assert [execution.id for execution in writer.store.get_executions()] == executions


def test_two_runs_side_by_side_share_it(server: Server, tmp_path: Path):
    server.renew()
    folders = [tmp_path / "one", tmp_path / "two"]
    started = []
    for folder in folders:
        folder.mkdir()
        started.append(start_toy(folder, "fan", store=str(server.location)))
    ended = [result_of_toy(process) for process in started]
    assert [result["state"] for result in ended] == ["done", "done"], ended
    store = Store(server.location)
    assert {run.name for run in store.runs("toy")} == {result["run"] for result in ended}
    for result in ended:
        executions = store.executions(result["run"])
        assert sorted(execution.node for execution in executions) == sorted(["Source", *(f"Add{n}" for n in range(8))])
        assert all(execution.succeeded for execution in executions)


def test_each_type_is_registered_once_by_processes_side_by_side(server: Server):
    server.renew()
    Writer(server.location)
    count, context = 3, multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initargs=(context.Barrier(count),), initializer=take_barrier) as pool:
        runs = [f"r{number}" for number in range(count)]
        written = list(pool.map(write_side_by_side, [server.location] * count, runs))
    store = connect(server.location)
    names = [kind.name for kind in (*store.get_execution_types(), *store.get_artifact_types())]
    assert {name for name in names if not name.startswith("mlmd.")} == {f"Node{n}" for n in range(20)} | {"Model"}
    assert len(names) == len(set(names))
    assert {run: [execution.id for execution in Store(server.location).executions(run)] for run in runs} == dict(
        zip(runs, written, strict=True)
    )


def test_executions_that_read_the_same_artifact_side_by_side_are_kept(server: Server):
    server.renew()
    writer, count, context = Writer(server.location, "shared"), 3, multiprocessing.get_context("spawn")
    artifacts = [writer.artifact("Model", f"/{number}") for number in range(30)]
    writer.execution("first", "Source", outputs=artifacts)
    for number in range(len(artifacts)):
        writer.execution("first", f"Node{number}")
    ids = [artifact.id for artifact in artifacts]
    with ProcessPoolExecutor(count, context, initargs=(context.Barrier(count),), initializer=take_barrier) as pool:
        runs = [f"r{number}" for number in range(count)]
        written = list(pool.map(read_side_by_side, [server.location] * count, runs, [ids] * count))
    store = connect(server.location)
    for execution_ids in written:
        assert [execution.id for execution in store.get_executions_by_id(execution_ids)] == execution_ids
        read = {event.execution_id: event.artifact_id for event in store.get_events_by_execution_ids(execution_ids)}
        assert [read.get(execution_id) for execution_id in execution_ids] == ids


def test_run_and_the_next_from_the_cache(server: Server, tmp_path: Path):
    server.renew()
    first = result_of_toy(start_toy(tmp_path, store=str(server.location)))
    assert (first["state"], first["rows"]) == ("done", {"train": 8, "eval": 4})
    second = result_of_toy(start_toy(tmp_path, store=str(server.location)))
    assert {node["state"] for node in second["nodes"].values()} == {"cached"}
    assert not (tmp_path / "metadata.db").exists()
    # Files and messages must not contain the password.
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or PASSWORD.encode() not in file.read_bytes()


def test_wrong_password_is_reported_at_once(server: Server, monkeypatch: pytest.MonkeyPatch):
    server.renew()
    Writer(server.location)
    monkeypatch.setenv("METADATA_PASSWORD", "a wrong one")
    for open_store in (check_store, Store):
        with pytest.raises(MachineError, match=r"authentication failed|Access denied") as raised:
            open_store(server.location)
        assert "METADATA_PASSWORD" in raised.value.remedy
        assert "a wrong one" not in str(raised.value)


def test_missing_database_is_reported(server: Server):
    with pytest.raises(MachineError, match=r"does not exist|Unknown database|Access denied"):
        check_store(Database(server.backend, "127.0.0.1", server.port, "nowhere", "tfx"))


def test_empty_database_is_fine_and_nothing_has_run(server: Server):
    server.renew()
    check_store(server.location)
    ended = light_command("runs", "--store", str(server.location))
    assert ended.exit_code == 2
    assert "nothing has run yet" in ended.err


def test_older_store_is_migrated_only_on_request(server: Server):
    server.renew()
    Writer(server.location).execution("r1", "Trainer")
    before = Store(server.location).executions("r1")
    downgrade_schema(make_connection_config(server.location), 8)
    for open_it in (check_store, Store, connect):
        with pytest.raises(MachineError, match="expected schema version 10, received 8") as raised:
            open_it(server.location)
        assert "store migrate" in raised.value.remedy
    with pytest.raises(InputError, match="received no --backed-up") as refused:
        migrate(server.location)
    assert "dump" in refused.value.remedy
    if server.backend == "postgresql":
        # ML Metadata has had PostgreSQL since schema version 10; its queries for older ones overflow there.
        with pytest.raises(MachineError, match="cannot be migrated"):
            migrate(server.location, backed_up=True)
        return
    assert migrate(server.location, backed_up=True) == (8, None)
    assert Store(server.location).executions("r1") == before
    assert migrate(server.location) == (10, None)


def test_through_the_ir_and_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET", "quite")
    for location in (
        Path("/somewhere/metadata.db"),
        Database("postgresql", "db", 5432, "it's", "ada \\", "SECRET"),
        Database("mysql", "db", 3307, "metadata", "ada", "SECRET"),
        Database("mysql", "::1", 3306, "metadata", "ada"),
    ):
        assert from_ir(to_ir(location)) == location
        assert "quite" not in str(to_ir(location))


def _plain(answer: Any) -> Any:
    """Return an answer without its times, which differ by when each store was written."""
    if is_dataclass(answer) and not isinstance(answer, type):
        answer = asdict(answer)
    if isinstance(answer, dict):
        times = ("started", "updated", "created")
        return {key: _plain(value) for key, value in answer.items() if key not in times}
    return [_plain(element) for element in answer] if isinstance(answer, (list, tuple)) else answer


def _timeless(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00|Z)?|\b\d{10}\.\d+|\d+\.\d+(e-\d+)?( ?m?s)?\b", "TIME", text)
