"""The written DAG under a real Airflow: whole runs, failures, a backfill, assets, callbacks, waiting for data."""

from __future__ import annotations

import datetime
import functools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.authoring.config.airflow import AirflowConfig
from pipeline.authoring.config.orchestrators import ScheduleConfig
from pipeline.core.metadata.store import Store
from pipeline.core.records import GraphNode
from pipeline.orchestration.airflow import Dag, pipeline_file, write_dag
from pipeline.orchestration.local import processes
from tests.support.data import people
from tests.support.runs.command import ROOT, Runs, command
from tests.support.runs.lineage_edges import edges
from tests.support.runs.toy_runs import compile_in_child
from tests.support.servers.airflow_site import PROGRAM, Airflow, forking_airflow
from tests.support.servers.in_fork_server import in_child

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.orchestrator,
    pytest.mark.needs("airflow"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with forking_airflow(tmp_path_factory.mktemp("airflow")) as started:
        yield started


@pytest.mark.slow
def test_same_config_gives_the_same_model_and_lineage(site: Airflow, example: Runs, tmp_path: Path):
    name = example.pipeline
    shared = (*example.config, "--set", f"runtime.output={tmp_path / 'out'}")
    written = command("--airflow", *shared, "--output", str(site.dags))
    assert (written.exit_code, written.err) == (0, "")
    site.fork(name)
    site.knows(name)
    site.command("dags", "trigger", name, "--run-id", "manual__one")
    assert site.ended(name) == {"manual__one": "success"}
    nodes = set(example.first.states)
    tasks = site.tasks(name, "manual__one")
    assert {task: state for task, (state, _) in tasks.items()} == dict.fromkeys(nodes, "success")
    lost = {task: range(1, tries) for task, (_, tries) in tasks.items()}
    assert site.asset_events(f"{name}/model") == [{"pipeline": name, "run": "manual__one"}]
    assert not [
        task for task, attempts in lost.items() for at in attempts if site.has_run(name, "manual__one", task, at)
    ]

    [run] = [json.loads(line) for line in command("runs", *shared, "--json").out.splitlines()]
    assert (run["run"], run["state"], run["verdict"]) == ("manual__one", "done", "blessed")
    local = example.first.result
    assert run["metrics"] == pytest.approx(local["metrics"], abs=0.01)
    ours, theirs = Store(tmp_path / "out" / name / "metadata.db"), Store(example.output / "metadata.db")
    assert edges(ours, "manual__one") == edges(theirs, local["run"])
    shown = json.loads(command("runs", "show", "manual__one", *shared, "--json").out)
    assert {name: node["state"] for name, node in shown["nodes"].items()} == dict.fromkeys(nodes, "done")
    assert "manual__one" in command("store", "lineage", run["version"], *shared).out
    assert "LatestBlessedModel" in (tmp_path / "out" / name / "logs/manual__one/report.html").read_text()
    # It is the same pipeline, so a run on this machine finds all outputs in the cache.
    states = command("--local", "--json", *shared).states
    assert {states[name] for name in nodes - {"LatestBlessedModel", "Evaluator", "Pusher"}} == {"cached"}


@pytest.mark.parametrize("deed", [pytest.param("raise", marks=pytest.mark.slow), "kill"])
def test_node_that_fails_once_is_tried_again(site: Airflow, tmp_path: Path, deed: str):
    dag = f"toy_{deed}"
    script = tmp_path / "Actor.script"
    script.write_text(f"once {script} {deed}")
    compiled = functools.partial(compile_in_child, tmp_path, "chain", 1)
    ir, graph = in_child(tmp_path / "log", processes.compile_pipeline, compiled)
    file = pipeline_file(site.dags, dag)
    file.parent.mkdir()
    file.write_bytes(ir)
    schedule = ScheduleConfig.model_validate(
        {"every": "@yearly", "start": "2999-01-01", "retries": 1, "retry_minutes": 0}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        write_dag(Dag(dag, graph, (), tmp_path / "logs", schedule), site.dags)
    site.fork(dag)
    site.knows(dag)
    site.command("dags", "trigger", dag, "--run-id", "manual__one")
    assert site.ended(dag) == {"manual__one": "success"}
    tries = {"Source": 1, "Add": 1, "Actor": 2, "Rows": 1}
    assert site.tasks(dag, "manual__one") == {node: ("success", number) for node, number in tries.items()}
    executions = Store(tmp_path / "metadata.db").executions("manual__one")
    assert [(execution.node, execution.state) for execution in executions] == [(node, "COMPLETE") for node in tries]


@pytest.mark.slow
def test_person_approves_the_push_in_airflow(site: Airflow, tmp_path: Path):
    new = people.write_new(tmp_path / "new.csv")
    sections = {"push": {"approval": "required"}, "predict": {"path": str(new), "columns": ["id"]}}
    config = people.project(tmp_path, "approved", **sections)
    shared = ("--config", str(config), "--set", f"runtime.output={tmp_path / 'out'}")
    # The nodes have ended before Airflow runs them under the same run IDs, so only the approval takes time.
    runs = [command("--local", "--json", *shared).result["run"] for _ in range(3)]
    assert command("--airflow", *shared, "--output", str(site.dags)).exit_code == 0
    manifest = pipeline_file(site.dags, "approved").with_name("manifest.json")
    record = json.loads(manifest.read_text())
    nodes = [{"id": "Pusher", "upstream": []}, {"id": "Predictor", "upstream": ["Pusher"]}]
    assert {"Pusher", "Predictor"} <= {node["id"] for node in record["nodes"]}
    manifest.write_text(json.dumps({**record, "nodes": nodes}))
    site.fork("approved")
    site.knows("approved")

    site.command("dags", "trigger", "approved", "--run-id", runs[0])
    site.answer("approved", runs[0], "approve", "Reject")
    assert site.ended("approved") == {runs[0]: "success"}, site.tasks("approved", runs[0])
    states = {task: state for task, (state, _) in site.tasks("approved", runs[0]).items()}
    done = dict.fromkeys(("Pusher", "check_approval", "approve", "Predictor"), "success")
    assert states == {**done, "publish": "skipped"}
    pushed = tmp_path / "out" / "approved" / "pushed"
    assert not list(pushed.glob("*/saved_model.pb"))

    site.command("dags", "trigger", "approved", "--run-id", runs[1])
    # A note is never part of a command.
    note = "looked at it; $(touch pwned) `touch pwned` \" '"
    site.answer("approved", runs[1], "approve", "Approve", note=note)
    assert site.ended("approved", runs=2)[runs[1]] == "success"
    states = {task: state for task, (state, _) in site.tasks("approved", runs[1]).items()}
    assert states == {**done, "publish": "success"}
    [manifest_of_version] = [json.loads(path.read_text()) for path in pushed.glob("*/manifest.json")]
    approval = manifest_of_version["approval"]
    assert (approval["by"], approval["note"]) == (site.USER, note)
    assert not list(ROOT.glob("pwned"))

    # The three runs share the model, which is approved now, so nobody is asked again.
    site.command("dags", "trigger", "approved", "--run-id", runs[2])
    assert site.ended("approved", runs=3)[runs[2]] == "success"
    states = {task: state for task, (state, _) in site.tasks("approved", runs[2]).items()}
    skipped = dict.fromkeys(("check_approval", "approve", "publish"), "skipped")
    assert states == {**done, **skipped}


@pytest.mark.slow
def test_backfill_over_three_spans(site: Airflow, tmp_path: Path):
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    for day in days:
        (tmp_path / f"{day}").mkdir()
        people.write(tmp_path / f"{day}" / "people.csv", people.rows(300 + day.day, seed=day.day))
    data = tmp_path / "{YYYY}-{MM}-{DD}" / "people.csv"
    schedule = {"every": "@daily", "start": "2026-01-01", "span": "date"}
    config = people.write_config(tmp_path / "spans.yaml", data, schedule=schedule)
    shared = ("--config", str(config), "--set", f"runtime.output={tmp_path / 'out'}")
    assert command("--airflow", *shared, "--output", str(site.dags)).exit_code == 0
    # The nodes after ExampleGen behave as in any other run.
    manifest = pipeline_file(site.dags, "spans").with_name("manifest.json")
    record = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**record, "nodes": record["nodes"][:1]}))
    site.fork("spans")
    site.knows("spans")
    dates = ("--from-date", str(days[0]), "--to-date", str(days[-1]))
    site.command("backfill", "create", "--dag-id", "spans", *dates)
    # Yesterday's scheduled run lacks data, and waits for its next try.
    ended = site.ended("spans", runs=3)
    assert {run.partition("__")[0]: state for run, state in ended.items()} == {"backfill": "success"}
    store = Store(tmp_path / "out/spans/metadata.db")
    several = [store.artifacts(run, "Examples") for run in sorted(ended)]
    spans_and_rows = [(artifact.properties["span"], artifact.properties["rows_read"]) for [artifact] in several]
    first = (days[0] - datetime.date(1970, 1, 1)).days
    assert spans_and_rows == [(first, 301), (first + 1, 302), (first + 2, 303)]


NODE = """#!/bin/sh
# Stands for the pipeline's Python: records its arguments, and ends as a node does whose state is in a file.
echo "$*" >> "$0.calls"
echo "node: $(cat "$0.state")"
test "$(cat "$0.state")" != failed
"""
CALLBACK = """
from pathlib import Path


def write(context):
    Path(FOLDER, context["dag"].dag_id + ".reason").write_text(context["reason"])


def write_task(context):
    Path(FOLDER, "failed_task").write_text(context["ti"].task_id)
"""


def write_stand_in(
    site: Airflow, folder: Path, dag: str, node: str, airflow: dict[str, object], data: str = ""
) -> Path:
    """Write a DAG of one node, for which a shell script stands; return the script."""
    script = folder / dag
    script.write_text(NODE)
    script.chmod(0o755)
    Path(f"{script}.state").write_text("done")
    pipeline_file(site.dags, dag).parent.mkdir()
    schedule = ScheduleConfig.model_validate({"start": "2020-01-01", "span": "date", "retries": 0})
    section = AirflowConfig.model_validate(airflow)
    write_dag(Dag(dag, (GraphNode(node, ()),), (), folder, schedule, section, [data] if data else []), site.dags)
    site.run_with(dag, script)
    site.knows(dag)
    return script


def test_push_starts_a_run_that_waits_for_the_data_of_its_day(site: Airflow, tmp_path: Path):
    (site.dags / "callbacks.py").write_text(CALLBACK.replace("FOLDER", repr(str(tmp_path))))
    site.start_part("triggerer", "triggerer", "--skip-serve-logs")
    # It has no times: an asset that nothing updates starts it.
    hooks = {"on_failure": "callbacks.write", "on_task_failure": "callbacks.write_task"}
    pusher = write_stand_in(site, tmp_path, "upstream", "Pusher", {"run_after": ["outside"], **hooks})
    section = {
        "run_after": ["upstream/model"],
        "wait_for_data": {"every_seconds": 0.2},
        "on_success": "callbacks.write",
        "tasks": {"every": {"priority": 7}},
    }
    data = tmp_path / "{YYYY}-{MM}-{DD}" / "v{VERSION}" / "people.csv"
    reader = write_stand_in(site, tmp_path, "downstream", "ExampleGen", section, str(data))
    span = (datetime.date(2026, 1, 2) - datetime.date(1970, 1, 1)).days

    site.trigger("upstream", "first", "2026-01-02T00:00:00Z")
    site.until(lambda: "deferred" in site.task_states("downstream"), "nothing waits")
    assert not Path(f"{reader}.calls").exists()
    (tmp_path / "2026-01-02/v3").mkdir(parents=True)
    people.write(tmp_path / "2026-01-02/v3/people.csv", people.rows(3))
    assert list(site.ended("downstream").values()) == ["success"]
    # The reader takes the day of the push, not the day on which it was started.
    [call] = Path(f"{reader}.calls").read_text().splitlines()
    assert call.endswith(f"--span {span}")
    assert site.asset_events("upstream/model") == [{"pipeline": "upstream", "run": "first", "span": span}]
    assert site.ask("SELECT DISTINCT priority_weight FROM task_instance WHERE dag_id = %s", "downstream") == [(7,)]
    site.until((tmp_path / "downstream.reason").exists, "no callback after the successful run")
    assert not (tmp_path / "upstream.reason").exists()

    # A push that the cache answers does not start a run.
    Path(f"{pusher}.state").write_text("cached")
    site.trigger("upstream", "second", "2026-01-03T00:00:00Z")
    assert site.ended("upstream", runs=2) == {"first": "success", "second": "success"}
    assert len(site.asset_events("upstream/model")) == 1
    Path(f"{pusher}.state").write_text("failed")
    site.trigger("upstream", "third", "2026-01-04T00:00:00Z")
    assert site.ended("upstream", runs=3)["third"] == "failed"
    site.until((tmp_path / "upstream.reason").exists, "no callback after the failed run")
    assert (tmp_path / "failed_task").read_text() == "Pusher"


def test_dag_is_read_within_half_a_second(site: Airflow, few: Runs):
    timed = (
        "import airflow.sdk, airflow.providers.standard.operators.bash, runpy, sys, time\n"
        "from airflow.sdk import DAG, Asset, AssetAlias, AssetAll, AssetOrTimeSchedule, CronTriggerTimetable\n"
        "began = time.process_time()\n"
        "dag = runpy.run_path(sys.argv[1])['dag']\n"
        "print(time.process_time() - began)\n"
        "print([name for name in ('tensorflow', 'tfx', 'apache_beam', 'pipeline') if name in sys.modules])\n"
        "print(dag.tasks[0].cwd, dag.tasks[0].bash_command.split()[1])\n"
    )
    assert command("--airflow", *few.config, "--output", str(site.dags)).exit_code == 0
    ended = subprocess.run(
        [PROGRAM.with_name("python"), "-c", timed, site.dags / "few.py"],
        env={**os.environ, "AIRFLOW_HOME": str(site.home), "TFX_PIPELINE_ROOT": "/elsewhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, heavy, root = ended.stdout.splitlines()[-3:]
    assert float(seconds) < 0.5
    assert heavy == "[]"
    assert root == "/elsewhere /elsewhere/runner.py"
