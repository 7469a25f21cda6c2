"""Submit a pipeline to Kubeflow with its own client: as a run, or as a recurring run that replaces an earlier one.

Started by `python runner.py --kubeflow --submit`, in an environment that has kfp. Reads and writes a JSON object.
"""

import json
import sys

import kfp
from kfp_server_api.exceptions import ApiException


def main(request: dict) -> dict:
    """Submit the request; return the ids of what was created and replaced."""
    client = kfp.Client(host=request["host"], namespace=request["namespace"] or "kubeflow")
    experiment = client.create_experiment(request["experiment"], namespace=request["namespace"]).experiment_id
    common = {"enable_caching": False, "service_account": request["service_account"]}
    schedule = request["schedule"]
    if schedule is None:
        return {"run": client.run_pipeline(experiment, request["name"], request["file"], **common).run_id}
    known = client.list_recurring_runs(experiment_id=experiment, page_size=100).recurring_runs or []
    earlier = [each.recurring_run_id for each in known if each.display_name == request["name"]]
    made = client.create_recurring_run(
        experiment,
        request["name"],
        pipeline_package_path=request["file"],
        params=schedule["parameters"],
        start_time=schedule["start"],
        cron_expression=schedule["cron"],
        max_concurrency=1,
        no_catchup=not schedule["catch_up"],
        **common,
    )
    # Last, so that the earlier one continues if a call above fails.
    for each in earlier:
        client.delete_recurring_run(each)
    return {"recurring_run": made.recurring_run_id, "replaced": len(earlier)}


if __name__ == "__main__":
    try:
        json.dump(main(json.load(sys.stdin)), sys.stdout)
    except ApiException as error:
        sys.exit(f"{error.status} {error.reason}: {error.body}")
