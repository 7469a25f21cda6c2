"""A pipeline for Airflow 3: a task per node, each a process in the pipeline's own environment. Imports no TFX.

Written by `python runner.py --airflow`, together with the folder of the same name beside it. Do not edit it: write it
again.
"""

import importlib
import importlib.util
import json
import os
import re
import shlex
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, AssetAlias, AssetAll, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable

HERE = Path(__file__).with_suffix("")
TEXT = (HERE / "manifest.json").read_text()
# Where paths of the manifest and of the pipeline begin; without the variable, where they were written.
ROOT = os.environ.get("TFX_PIPELINE_ROOT") or json.loads(TEXT)["root"]
MANIFEST = json.loads(TEXT.replace("$TFX_PIPELINE_ROOT", json.dumps(ROOT)[1:-1]))
SCHEDULE, AIRFLOW = MANIFEST["schedule"], MANIFEST["airflow"]
MODEL = Asset(AIRFLOW["asset"])
# A task with an asset as its outlet updates it always. With an alias, it decides when it runs.
PUSHES = AssetAlias(f"{AIRFLOW['asset']} pushed")
SKIPPED = 3
# With an approval, the Pusher itself does not publish a model.
PUSHING_TASK = "publish" if MANIFEST["approval"] else "Pusher"
SPEC = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::(\d+))?\}")


def find_span(dag_run: Any, asset_events: Any) -> int:
    """Return the span of a run: the newest span of the events that started it, or the day of the run.

    Runs that events or users started do not have a logical date. The time at which they were created replaces it, and
    does not change when a task is tried again.
    """
    events = [event for several in asset_events.values() for event in several]
    if spans := [event.extra["span"] for event in events if "span" in event.extra]:
        return int(max(spans))
    day = dag_run.logical_date or dag_run.run_after
    return (day.astimezone(timezone.utc).date() - date(1970, 1, 1)).days


def make_glob(number: int, span: int) -> str:
    """Return the glob for the files of a span, from a pattern of the manifest; * replaces the version."""
    day = date(1970, 1, 1) + timedelta(days=span)
    values = {"YYYY": f"{day:%Y}", "MM": f"{day:%m}", "DD": f"{day:%d}", "VERSION": "*"}
    return SPEC.sub(
        lambda spec: values.get(spec[1]) or str(span).zfill(int(spec[2] or 0)), AIRFLOW["wait"]["patterns"][number]
    )


def find_callback(option: str) -> Callable[[Any], Any] | None:
    """Return a function that imports a callback when it is called, so that its imports do not delay this file."""
    if not (path := AIRFLOW.get(option)):
        return None
    module, _, name = path.rpartition(".")
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"airflow.{option}: Airflow's Python cannot import {module}")
    return lambda context: getattr(importlib.import_module(module), name)(context)


def find_schedule() -> Any:
    """Return what starts runs: times, assets, or both."""
    if not (assets := [Asset(name) for name in AIRFLOW["run_after"]]):
        return SCHEDULE.get("every")
    condition = (AssetAny if AIRFLOW["run_after_rule"] == "any" else AssetAll)(*assets)
    if not AIRFLOW["at_times"]:
        return condition
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(SCHEDULE["every"], timezone="UTC"), assets=condition)


def make_settings(name: str) -> dict[str, Any]:
    """Return the arguments of a task that say where and when it runs."""
    chosen = AIRFLOW["tasks"].get(name) or AIRFLOW["tasks"].get("every") or {}
    settings = {"priority_weight": chosen.get("priority", 1), "pool_slots": chosen.get("pool_slots", 1)}
    optional = {"pool": chosen.get("pool") or SCHEDULE.get("pool"), "queue": chosen.get("queue")}
    return settings | {option: value for option, value in optional.items() if value}


def make_task(
    name: str, *arguments: str, ending: str = "", environment: dict[str, str] | None = None, **options: object
) -> BashOperator:
    """Make a task that runs a verb in the pipeline's own environment.

    Args:
      name: ID of the task.
      arguments: Arguments of runner.py.
      ending: Further arguments, in the syntax of the shell. Airflow replaces expressions in braces when the task runs.
      environment: Further environment variables. Airflow replaces expressions in their values.
      options: Further options of the operator.
    """
    pushes = {"outlets": [PUSHES], "post_execute": update_asset} if name == PUSHING_TASK else {}
    return BashOperator(
        task_id=name,
        bash_command=shlex.join([MANIFEST["python"], MANIFEST["runner"], *arguments]) + ending,
        cwd=ROOT,
        env={**MANIFEST["environment"], **(environment or {})},
        append_env=True,
        **{"skip_on_exit_code": SKIPPED, **make_settings(name), **pushes, **options},
    )


def make_node_task(name: str, **options: object) -> BashOperator:
    """Make a task that runs a node of the pipeline."""
    span = " --span {{ find_span(dag_run, triggering_asset_events) }}" if SCHEDULE["span"] == "date" else ""
    arguments = ("--pipeline", str(HERE / "pipeline.pb"), "--node", name, "--logs", MANIFEST["logs"])
    return make_task(name, "node", "run", *arguments, ending=f" --run-id '{{{{ run_id }}}}'{span}", **options)


def update_asset(context: Any, last_line: Any = None) -> None:
    """Update the asset of the model after a push, unless the cache has answered: then, nothing was pushed."""
    if str(last_line).endswith(": cached"):
        return
    extra = {"pipeline": MANIFEST["pipeline"], "run": context["run_id"]}
    if SCHEDULE["span"] == "date":
        extra["span"] = find_span(context["dag_run"], context["triggering_asset_events"])
    context["outlet_events"][PUSHES].add(MODEL, extra=extra)


def make_wait_tasks() -> list[Any]:
    """Make the tasks that wait for the files of a run's span in Airflow's triggerer; none without `wait_for_data`."""
    if not (wait := AIRFLOW["wait"])["patterns"]:
        return []
    # Imported here because most pipelines do not wait.
    from airflow.providers.standard.sensors.filesystem import FileSensor

    class DataSensor(FileSensor):
        # The paths are absolute, so Airflow does not need the connection that names a base folder.
        path = property(lambda self: self.filepath)

    return [
        DataSensor(
            task_id="wait_for_data" if not number else f"wait_for_data_{number + 1}",
            filepath=f"{{{{ make_glob({number}, find_span(dag_run, triggering_asset_events)) }}}}",
            deferrable=True,
            poke_interval=wait["every_seconds"],
            timeout=wait["hours"] * 3600,
            # The limit of a node, which `timeout` replaces.
            execution_timeout=None,
            **make_settings("every"),
        )
        for number in range(len(wait["patterns"]))
    ]


def make_approval_tasks(pusher: BashOperator) -> BashOperator:
    """Make the tasks in which a person approves the push; return the task that publishes the model.

    If nobody answers in time, or somebody rejects the model, it is not published. `models approve` can still do that.
    """
    from airflow.providers.standard.operators.hitl import ApprovalOperator
    from airflow.sdk import Param

    verb = ("models", "approve", *MANIFEST["config"])
    # It is skipped, with the tasks after it, if the model is not blessed or was approved before.
    check = make_task("check_approval", *verb, "--check", ending=" '{{ run_id }}'")
    person = ApprovalOperator(
        task_id="approve",
        subject=f"Push the model of {MANIFEST['pipeline']}, run {{{{ run_id }}}}?",
        body=f"The report is {MANIFEST['logs']}/{{{{ run_id }}}}/report.html.",
        params={"note": Param("approved in Airflow", type="string", minLength=1, maxLength=500, title="Reason")},
        defaults="Reject",
        response_timeout=timedelta(hours=SCHEDULE["timeout_hours"]),
        execution_timeout=None,
    )
    answer = "ti.xcom_pull(task_ids='approve')"
    # The shell reads what the person has typed from variables, so it is never part of a command.
    typed = {
        "APPROVER": f"{{{{ {answer}['responded_by_user']['name'] }}}}",
        "NOTE": f"{{{{ {answer}['params_input']['note'] }}}}",
    }
    ending = """ '{{ run_id }}' --by="$APPROVER" --note="$NOTE" """
    # A refusal is a failure here, for example because the files of the model have changed.
    publish = make_task("publish", *verb, ending=ending, environment=typed, skip_on_exit_code=None)
    pusher >> check >> person >> publish
    return publish


with DAG(
    dag_id=MANIFEST["pipeline"],
    schedule=find_schedule(),
    start_date=datetime.fromisoformat(SCHEDULE["start"]).replace(tzinfo=timezone.utc),
    catchup=SCHEDULE.get("catch_up", False),
    max_active_runs=1,
    user_defined_macros={"find_span": find_span, "make_glob": make_glob},
    on_success_callback=find_callback("on_success"),
    on_failure_callback=find_callback("on_failure"),
    default_args={
        "retries": SCHEDULE["retries"],
        "retry_delay": timedelta(minutes=SCHEDULE["retry_minutes"]),
        "execution_timeout": timedelta(hours=SCHEDULE["timeout_hours"]),
        "owner": SCHEDULE["owner"],
        # A priority is the task's own: by default, Airflow adds the priorities of the tasks after it.
        "weight_rule": "absolute",
        "on_failure_callback": find_callback("on_task_failure"),
    },
) as dag:
    tasks = {}
    first = make_wait_tasks()
    if SCHEDULE.get("only_if", "every") != "every":
        due = make_task("due", "due", *MANIFEST["config"])
        for waiting in first:
            waiting >> due
        first = [due]
    published = None
    for node in MANIFEST["nodes"]:
        name, upstream = node["id"], node["upstream"]
        waits = published is not None and "Pusher" in upstream
        # These nodes also run if the tasks of the approval were skipped, but not if all tasks were.
        tasks[name] = make_node_task(name, **({"trigger_rule": "none_failed_min_one_success"} if waits else {}))
        for above in [tasks[node_id] for node_id in upstream] or first:
            above >> tasks[name]
        if waits:
            published >> tasks[name]
        if name == "Pusher" and MANIFEST["approval"]:
            published = make_approval_tasks(tasks[name])
