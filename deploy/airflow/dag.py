"""A pipeline for Airflow 3: a task per node, each a process in the pipeline's own environment. Imports no TFX.

Written by `python runner.py --airflow`, together with the folder of the same name beside it. Do not edit it: write it
again.
"""

import json
import os
import shlex
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

HERE = Path(__file__).with_suffix("")
TEXT = (HERE / "manifest.json").read_text()
# Where paths of the manifest and of the pipeline begin; without the variable, where they were written.
ROOT = os.environ.get("TFX_PIPELINE_ROOT") or json.loads(TEXT)["root"]
MANIFEST = json.loads(TEXT.replace("$TFX_PIPELINE_ROOT", json.dumps(ROOT)[1:-1]))
SCHEDULE = MANIFEST["schedule"]
SKIPPED = 3


def span_of(logical_date: datetime | None) -> int:
    """Return the span of a run's day; today's for a run that was started by hand."""
    day = logical_date or datetime.now(timezone.utc)
    return (day.astimezone(timezone.utc).date() - date(1970, 1, 1)).days


def task(name: str, *arguments: str) -> BashOperator:
    """Make a task that runs a verb in the pipeline's own environment."""
    given = " ".join(shlex.quote(each) for each in (MANIFEST["python"], MANIFEST["runner"], *arguments))
    # Airflow replaces the expressions in braces when the task runs.
    run_id = " --run-id '{{ run_id }}'" if arguments[:2] == ("node", "run") else ""
    span = " --span {{ span_of(logical_date) }}" if run_id and SCHEDULE.get("span") == "date" else ""
    return BashOperator(
        task_id=name,
        bash_command=given + run_id + span,
        cwd=ROOT,
        env=MANIFEST["environment"],
        append_env=True,
        skip_on_exit_code=SKIPPED,
    )


with DAG(
    dag_id=MANIFEST["pipeline"],
    schedule=SCHEDULE.get("every"),
    start_date=datetime.fromisoformat(SCHEDULE["start"]).replace(tzinfo=timezone.utc),
    catchup=SCHEDULE.get("catch_up", False),
    max_active_runs=1,
    user_defined_macros={"span_of": span_of},
    default_args={
        "retries": SCHEDULE["retries"],
        "retry_delay": timedelta(minutes=SCHEDULE["retry_minutes"]),
        "execution_timeout": timedelta(hours=SCHEDULE["timeout_hours"]),
        "owner": SCHEDULE["owner"],
        **({"pool": SCHEDULE["pool"]} if SCHEDULE.get("pool") else {}),
    },
) as dag:
    tasks = {}
    first = [task("due", "due", *MANIFEST["config"])] if SCHEDULE.get("only_if", "every") != "every" else []
    for node in MANIFEST["nodes"]:
        name = node["id"]
        file = str(HERE / "pipeline.pb")
        tasks[name] = task(name, "node", "run", "--pipeline", file, "--node", name, "--logs", MANIFEST["logs"])
        for above in [tasks[each] for each in node["upstream"]] or first:
            above >> tasks[name]
