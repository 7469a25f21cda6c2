"""Submits a written pipeline to Kubeflow by its own client: a run, or a recurring one in place of an earlier one.

Started by `python runner.py --kubeflow --submit`, in an environment that has kfp. Reads and writes a JSON object.
"""

import json
import sys

import kfp
from kfp_server_api.exceptions import ApiException


def main(told: dict) -> dict:
    """Submits; returns what has come of it."""
    client = kfp.Client(host=told["host"], namespace=told["namespace"] or "kubeflow")
    experiment = client.create_experiment(told["experiment"], namespace=told["namespace"]).experiment_id
    common = {"enable_caching": False, "service_account": told["service_account"]}
    schedule = told["schedule"]
    if schedule is None:
        return {"run": client.run_pipeline(experiment, told["name"], told["file"], **common).run_id}
    known = client.list_recurring_runs(experiment_id=experiment, page_size=100).recurring_runs or []
    earlier = [each.recurring_run_id for each in known if each.display_name == told["name"]]
    made = client.create_recurring_run(
        experiment,
        told["name"],
        pipeline_package_path=told["file"],
        params=schedule["parameters"],
        start_time=schedule["start"],
        cron_expression=schedule["cron"],
        max_concurrency=1,
        no_catchup=not schedule["catch_up"],
        **common,
    )
    # Only now: if anything goes wrong above, the earlier one goes on.
    for each in earlier:
        client.delete_recurring_run(each)
    return {"recurring_run": made.recurring_run_id, "replaced": len(earlier)}


if __name__ == "__main__":
    try:
        json.dump(main(json.load(sys.stdin)), sys.stdout)
    except ApiException as error:
        sys.exit(f"{error.status} {error.reason}: {error.body}")
