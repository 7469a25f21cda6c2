"""`runner.py manifest`: what Kubernetes or Vertex AI needs to train a config's model on the data of an earlier run."""

from __future__ import annotations

import argparse
import json
import logging
import sys

from components.errors import InputError
from components.files import is_remote
from components.trainer.remote import manifests
from pipeline.cli.options import DEFAULT_CONFIG, add_config, load_config

HELP = (
    "Write what a cluster needs to train: a job file into --to (the Trainer's inputs from an earlier run, and its "
    "parameters from the config), and to the standard output a manifest that starts the tasks: TFJob and JobSet as "
    "YAML for kubectl, a Vertex AI CustomJob as JSON. Nothing is submitted."
)

_CLUSTER = {"tfjob": "tfjob", "vertex": "vertex", "jobset": "given"}
"""Kind → the `training.cluster` of its tasks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--kind", choices=manifests.MANIFESTS, help="for what (default: training.cluster, if tfjob or vertex)"
    )
    parser.add_argument(
        "--image", required=True, help="the container image: this project in its working folder, and its packages"
    )
    parser.add_argument(
        "--to", metavar="FOLDER", required=True, help="where model and checkpoints will go; every task must reach it"
    )
    parser.add_argument("--run", metavar="RUN", help="the run whose data is trained on (default: the newest)")


def run(options: argparse.Namespace) -> int:
    import yaml

    from components.compat.tensorflow import set_environment
    from pipeline.authoring.preflight import check_data, check_store

    loaded = load_config(options, *([f"training.cluster={_CLUSTER[options.kind]}"] if options.kind else []))
    config = loaded.config
    kind = options.kind or config.training.cluster
    if kind not in manifests.MANIFESTS:
        raise InputError(
            f"--kind: expected {', '.join(manifests.MANIFESTS)}, received none, and training.cluster is {kind}",
            "name the kind, or set training.cluster to tfjob or vertex",
        )
    check_data(loaded)
    check_store(config.paths().store)
    set_environment()
    logging.disable(logging.WARNING)
    from pipeline.orchestration.training_job import job_file

    file = job_file.path(options.to)
    job = manifests.Job(manifests.name_of(config.pipeline.name), config.training, options.image, file)
    manifest = manifests.MANIFESTS[kind](job)
    chosen = () if options.config == DEFAULT_CONFIG else ("--config", options.config)
    local = [uri for uri in job_file.write(config, file, options.run, chosen) if not is_remote(uri)]
    if local:
        sys.stderr.write(f"note: every task reads {', '.join(local)}; mount them at these paths\n")
    if kind == "vertex":
        sys.stdout.write(json.dumps(manifest, indent=2) + "\n")
    else:
        yaml.safe_dump(manifest, sys.stdout, sort_keys=False, default_flow_style=None, width=120)
    return 0
