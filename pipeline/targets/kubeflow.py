"""The pipeline for Kubeflow Pipelines v2: a container for each node, which calls `run-node`.

TFX's own KubeflowV2DagRunner is not used here, since its pipelines need what Vertex AI has and Kubeflow Pipelines has
not: a resolver ends in "resolver not implemented yet" (backend/src/v2/compiler/argocompiler/argo.go in
kubeflow/pipelines), and nothing calls the hook before a task, in which ExampleGen looks up its span and fingerprint.
With `run-node`, TFX's launcher does both in the container, on the metadata store that the config names; so a run has
the same lineage, cache and record as anywhere else.

The format is that of Kubeflow's pipeline_spec.proto, and beside it kubernetes_executor_config.proto for what only
Kubernetes knows: volume, secrets, deadline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from components.errors import InputError
from pipeline.config import Config
from pipeline.config.kubeflow import EVERY, KubeflowConfig, Resources
from pipeline.config.schedule import BY_HAND, ScheduleConfig
from pipeline.graph import GraphNode

SPAN = "span"
"""The parameter of a run that says which span it takes, as `run-node --span` does."""
_RUN_ID = "{{$.pipeline_job_uuid}}"
"""Kubeflow puts the run's own id here."""
_DUE, _COMPILE, _RUN = "due", "compile", "run"
_GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Job:
    """What a spec is made of.

    Args:
      pipeline: its name.
      graph: the nodes.
      config: what `runner.py` takes in the container to run the same pipeline.
      kubeflow: what the containers are.
      schedule: when it runs, what is done about failures; None: somebody starts it.
    """

    pipeline: str
    graph: tuple[GraphNode, ...]
    config: Sequence[str]
    kubeflow: KubeflowConfig
    schedule: ScheduleConfig | None

    @property
    def rules(self) -> ScheduleConfig:
        """The schedule, or what stands in for it."""
        return self.schedule or BY_HAND


def check(config: Config) -> KubeflowConfig:
    """The section, if the pipeline can run on Kubeflow.

    Raises:
      InputError: the config has no such section, or its metadata store is none that several machines can share.
    """
    if config.kubeflow is None:
        raise InputError(
            "--kubeflow: expected a kubeflow section in the config, received none",
            "add one with image and claim, or --set kubeflow.image=… --set kubeflow.claim=…; see docs/kubeflow.md",
        )
    if config.metadata.backend == "sqlite":
        raise InputError(
            "--kubeflow: expected a metadata store on a server, received metadata.backend: sqlite, a file that only "
            "one machine may write to",
            "set metadata.backend to postgresql or mysql, with host, database and user",
        )
    return config.kubeflow


def notes(config: Config, kubeflow: KubeflowConfig) -> Iterator[str]:
    """What has to be there in the containers, and cannot be seen from here."""
    paths = [*config.data.path, *([config.schema_.path] if config.schema_.path else [])]
    inside = [each for each in paths if "://" not in each and not each.startswith(f"{kubeflow.mount}/")]
    if inside:
        yield f"{', '.join(inside)} will be looked for in the image, since not below {kubeflow.mount}"
    variable = config.metadata.password_env
    if variable not in kubeflow.secrets:
        yield f"no secret gives {variable}: the metadata store will be asked without a password"


def write(job: Job, file: Path) -> None:
    """Writes the spec, whole or not at all.

    Raises:
      InputError: the file cannot be written, or is not named as Kubeflow wants it.
    """
    if file.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output: expected a file that ends in .yaml, received {file}", "Kubeflow takes no other")
    beside = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("w", encoding="utf-8") as stream:
            yaml.safe_dump_all(documents(job), stream, sort_keys=False, width=120)
        beside.replace(file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file with --output") from error


def documents(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline's spec, and what of it only Kubernetes knows."""
    containers = {_COMPILE: _compile(job), **{node.id: _node(job, node.id) for node in job.graph}}
    tasks = {
        _COMPILE: _task(_COMPILE, (), job.rules),
        **{
            _name(node.id): _task(
                node.id, [_name(each) for each in node.upstream] or [_COMPILE], job.rules, node.id == "ExampleGen"
            )
            for node in job.graph
        },
    }
    components: dict[str, Any] = {f"comp-{_name(each)}": _component(each) for each in containers}
    if job.rules.only_if != "every":
        containers[_DUE] = _due(job)
        components[f"comp-{_DUE}"] = {
            "executorLabel": f"exec-{_DUE}",
            "outputDefinitions": {"parameters": {_DUE: {"parameterType": "STRING"}}},
        }
        components[f"comp-{_RUN}"] = {
            "dag": {"tasks": tasks},
            "inputDefinitions": {"parameters": {SPAN: {"parameterType": "STRING"}, _DUE: {"parameterType": "STRING"}}},
        }
        tasks = {_DUE: _task(_DUE, (), job.rules), _RUN: _if_due()}
    executors = {f"exec-{_name(each)}": {"container": container} for each, container in containers.items()}
    spec = {
        "pipelineInfo": {"name": _name(job.pipeline), "description": f"{job.pipeline}, node by node"},
        "schemaVersion": "2.1.0",
        "sdkVersion": "tfx-pipeline",
        "root": {
            "dag": {"tasks": tasks},
            "inputDefinitions": {
                "parameters": {
                    SPAN: {
                        "parameterType": "STRING",
                        "defaultValue": "today" if job.rules.span == "date" else "newest",
                        "description": "The newest span to take: a number, a day such as 2026-01-31, today, or newest.",
                        "isOptional": True,
                    }
                }
            },
        },
        "components": components,
        "deploymentSpec": {"executors": executors},
    }
    platform = {label: _kubernetes(job) for label in executors}
    return spec, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": platform}}}}


def _name(id_: str) -> str:
    """A node's id, or a pipeline's, as Kubernetes takes names: ExampleGen is example-gen."""
    dashed = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", id_)
    return re.sub(r"[^a-z0-9]+", "-", dashed.lower()).strip("-")


def _component(id_: str) -> dict[str, Any]:
    span = {"inputDefinitions": {"parameters": {SPAN: {"parameterType": "STRING"}}}} if id_ == "ExampleGen" else {}
    return {"executorLabel": f"exec-{_name(id_)}", **span}


def _task(id_: str, upstream: Sequence[str], rules: ScheduleConfig, takes_span: bool = False) -> dict[str, Any]:
    """A task of the graph, whose two names have to be one: by it Kubeflow finds what others have put out.

    Kubeflow's own cache is off: whether a node has to run, TFX says in the container.
    """
    inputs = {"inputs": {"parameters": {SPAN: {"componentInputParameter": SPAN}}}} if takes_span else {}
    retries = {
        "retryPolicy": {
            "maxRetryCount": rules.retries,
            "backoffDuration": f"{rules.retry_minutes * 60:g}s",
            "backoffFactor": 1.0,
        }
    }
    return {
        "taskInfo": {"name": _name(id_)},
        "componentRef": {"name": f"comp-{_name(id_)}"},
        **({"dependentTasks": list(upstream)} if upstream else {}),
        **inputs,
        "cachingOptions": {"enableCache": False},
        **(retries if rules.retries else {}),
    }


def _if_due() -> dict[str, Any]:
    told = {"taskOutputParameter": {"producerTask": _DUE, "outputParameterKey": _DUE}}
    return {
        "taskInfo": {"name": _RUN},
        "componentRef": {"name": f"comp-{_RUN}"},
        "dependentTasks": [_DUE],
        "inputs": {"parameters": {SPAN: {"componentInputParameter": SPAN}, _DUE: told}},
        "triggerPolicy": {"condition": f"inputs.parameter_values['{_DUE}'] == 'yes'"},
    }


def _due(job: Job) -> dict[str, Any]:
    place = f"{{{{$.outputs.parameters['{_DUE}'].output_file}}}}"
    return _container(job, _DUE, [_DUE, *_config(job), "--to", place])


def _compile(job: Job) -> dict[str, Any]:
    """The config is compiled in the container, where paths and release line are those of the nodes."""
    return _container(job, _COMPILE, [_COMPILE, *_config(job), "--to", _compiled(job)])


def _node(job: Job, id_: str) -> dict[str, Any]:
    given = ["run-node", "--pipeline", _compiled(job), "--node", id_, "--run-id", _RUN_ID]
    span = ["--span", f"{{{{$.inputs.parameters['{SPAN}']}}}}"] if id_ == "ExampleGen" else []
    return _container(job, id_, [*given, *span, "--logs", f"{_output(job)}/{job.pipeline}/logs"])


def _config(job: Job) -> list[str]:
    return [*job.config, "--output", _output(job)]


def _output(job: Job) -> str:
    return f"{job.kubeflow.mount}/out"


def _compiled(job: Job) -> str:
    return f"{_output(job)}/{job.pipeline}/logs/{_RUN_ID}/pipeline.pb"


def _container(job: Job, id_: str, arguments: list[str]) -> dict[str, Any]:
    resources = _resources(job.kubeflow.resources, id_)
    environment = [{"name": name, "value": value} for name, value in job.kubeflow.environment.items()]
    return {
        "image": job.kubeflow.image,
        "command": ["python", "runner.py"],
        "args": arguments,
        **({"env": environment} if environment else {}),
        **({"resources": resources} if resources else {}),
    }


def _resources(given: Mapping[str, Resources], id_: str) -> dict[str, Any]:
    wanted = given.get(id_) or given.get(EVERY) or Resources()
    accelerator = {"type": _GPU, "count": str(wanted.gpus)} if wanted.gpus else None
    told = {"cpuLimit": wanted.cpu, "memoryLimit": wanted.memory_gb, "accelerator": accelerator}
    return {name: value for name, value in told.items() if value is not None}


def _kubernetes(job: Job) -> dict[str, Any]:
    """Volume, secrets, machines and deadline of a container; numbers of 64 bits are texts in a message's JSON."""
    kubeflow = job.kubeflow
    secrets = [
        {"secretName": each.secret, "keyToEnv": [{"secretKey": each.key, "envVar": variable}]}
        for variable, each in kubeflow.secrets.items()
    ]
    return {
        "pvcMount": [{"constant": kubeflow.claim, "mountPath": kubeflow.mount}],
        **({"secretAsEnv": secrets} if secrets else {}),
        **({"nodeSelector": {"labels": dict(kubeflow.node_selector)}} if kubeflow.node_selector else {}),
        "activeDeadlineSeconds": str(round(job.rules.timeout_hours * 3600)),
    }
