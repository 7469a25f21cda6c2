"""Compiles a pipeline for Vertex AI Pipelines with TFX's own compiler; the containers start `vertex_entrypoint`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from components.base.errors import InputError
from components.base.files import is_remote, write_atomically
from pipeline.authoring.config import Config
from pipeline.authoring.config.orchestrators import ResourcesConfig, ScheduleConfig, VertexPipelinesConfig
from pipeline.authoring.config.runtime import is_here
from pipeline.orchestration import engines, vertex_entrypoint

_MAX_PARAMETER_BYTES = 100 * 1024
"""Linux takes 128 KiB as one argument of a process; a node's parameters are one, with names and URIs of artifacts."""
_MOUNTED = "/gcs/"
"""Where the service's containers find the buckets as folders."""


def section_of(config: Config) -> VertexPipelinesConfig:
    """Return the section `vertex`.

    Raises:
      InputError: the config has none.
    """
    if config.vertex is None:
        raise InputError(
            "--vertex: expected a section vertex in the config, received none",
            "add vertex: {project: …, region: …, image: …, root: gs://…}; see docs/how-to/vertex.md",
        )
    return config.vertex


def check(config: Config) -> None:
    """Check that the service supports the config.

    Raises:
      InputError: it does not, or the config has no section for it.
    """
    section_of(config)
    name = config.pipeline.name
    if not name[0].isalpha() or "_" in name:
        raise InputError(
            f"pipeline.name: Vertex AI takes a letter, then small letters, digits and -; received {name}",
            f"--set pipeline.name={name.replace('_', '-').lstrip('-0123456789') or 'pipeline'}",
        )
    if config.serving.check in ("docker", "kubernetes"):
        raise InputError(
            f"serving.check: {config.serving.check}, and a container of Vertex AI's has neither Docker nor a cluster",
            "--set serving.check=server, which is a process in the node's own container",
        )
    for node in config.optional_nodes():
        node.check_managed(config)


def write(config: Config, file: Path) -> dict[str, Any]:
    """Compiles a config with a `vertex` section, and writes the pipeline's spec as YAML.

    Args:
      config: the pipeline; one that `check` lets pass.
      file: ends in .yaml or .yml; what is there is replaced.

    Returns:
      The spec.

    Raises:
      InputError: a node has too many parameters, or the file cannot be written.
    """
    section = section_of(config)
    if file.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output: expected FILE.yaml, received {file}", "name a file that ends in .yaml")
    spec = _compiled(config, section)
    try:
        write_atomically(file, yaml.safe_dump(spec, sort_keys=True, allow_unicode=True))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return spec


def warnings(config: Config) -> list[str]:
    """Warnings about paths and addresses of this machine, which containers reach only if their image has them."""
    local = [(f"{field}: {path}", "its rows") for field, path in config.data.places]
    if config.push.directory is not None:
        local.append((f"push.directory: {config.push.directory}", "pushed models, which are lost with the container"))
    for field, path in (
        ("features.preprocessing_fn", config.features.preprocessing_fn),
        ("model.run_fn", config.model.run_fn),
        ("model.build", config.model.build),
    ):
        # A module by import path may be installed in the image.
        if path is not None and ".py:" in path:
            local.append((f"{field}: {path}", "your code"))
    lines = [
        f"{field} is on this machine: the containers see {what} only if the image has it under this path"
        for field, what in local
        if not is_remote(path := field.partition(": ")[2]) and not path.startswith(_MOUNTED)
    ]
    here = [address for address in engines.addresses(config.runtime) if is_here(address)]
    lines += [f"runtime.engine: {address} is on this machine, which no container reaches" for address in here]
    return lines


def _compiled(config: Config, section: VertexPipelinesConfig) -> dict[str, Any]:
    # Imported late, when the caller has set TensorFlow's environment variables.
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2
    from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner, KubeflowV2DagRunnerConfig
    from tfx.utils import name_utils

    from pipeline.authoring.build import build
    from pipeline.orchestration.compiler import resolve_inputs
    from pipeline.orchestration.root_folder import without_root

    config = _with_uris(config, section)
    pipeline = build(config, resolve_inputs(config, managed=True))
    runner = KubeflowV2DagRunner(
        KubeflowV2DagRunnerConfig(
            default_image=section.image,
            default_commands=vertex_entrypoint.command(vertex_entrypoint.EXECUTE, config.pipeline.name),
            use_pipeline_spec_2_1=True,
        )
    )
    job = runner.run(pipeline, write_out=False)
    spec = json_format.ParseDict(job["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())
    spec.default_pipeline_root = section.root
    deployment = json_format.ParseDict(
        json_format.MessageToDict(spec.deployment_spec), pipeline_spec_pb2.PipelineDeploymentConfig()
    )
    driver = next(node.driver_class for node in pipeline.components if node.id == "ExampleGen")
    for name, task in spec.root.dag.tasks.items():
        executor = deployment.executors[f"{name}_executor"]
        if not executor.HasField("container"):
            continue
        _check_size(name, task)
        if name == "ExampleGen":
            _drive(executor.container, name_utils.get_full_name(driver), config.pipeline.name)
        if name in section.resources:
            _set_resources(executor.container.resources, section.resources[name])
        if config.schedule is not None and config.schedule.retries:
            _retry(task.retry_policy, config.schedule)
    spec.deployment_spec.Clear()
    spec.deployment_spec.update(json_format.MessageToDict(deployment))
    # The image's working directory has the content of this one.
    content: dict[str, Any] = without_root(json_format.MessageToDict(spec), Path.cwd(), ".")
    return content


def _with_uris(config: Config, section: VertexPipelinesConfig) -> Config:
    """Return the config with the service's URIs for artifacts and, unless it names a folder, for pushed models."""
    root = section.root.rstrip("/")
    runtime = config.runtime.model_copy(update={"artifacts": root})
    push = config.push.model_copy(update={"directory": config.push.directory or f"{root}/pushed"})
    return config.model_copy(update={"runtime": runtime, "push": push})


def _drive(container: Any, driver: str, pipeline: str) -> None:
    """Make the service call our driver before it reads its cache, instead of TFX's, also for a query."""
    arguments = list(container.args)
    arguments[arguments.index("--executor_class_path") + 1] = driver
    hook = container.lifecycle.pre_cache_check
    del hook.command[:], hook.args[:]
    hook.command.extend(vertex_entrypoint.command(vertex_entrypoint.DRIVE, pipeline))
    hook.args.extend(arguments)


def _set_resources(resources: Any, requested: ResourcesConfig) -> None:
    resources.cpu_limit = requested.cpu or 0
    resources.memory_limit = requested.memory_gb or 0
    if requested.accelerator is not None:
        resources.accelerator.type, resources.accelerator.count = requested.accelerator, requested.accelerators


def _retry(policy: Any, schedule: ScheduleConfig) -> None:
    policy.max_retry_count = schedule.retries
    policy.backoff_duration.seconds = round(schedule.retry_minutes * 60)
    policy.backoff_factor = 1


def _check_size(node: str, task: Any) -> None:
    """Check that a node's parameters fit into one argument of a process, by which the container receives them."""
    sizes = {
        name: len(json.dumps(parameter.runtime_value.constant.string_value))
        for name, parameter in task.inputs.parameters.items()
    }
    if sum(sizes.values()) > _MAX_PARAMETER_BYTES:
        fewer = "remove schema.path, to infer the schema, or shorten it"
        raise InputError(
            f"{node}: its parameters take {sum(sizes.values()) / 1024:.0f} KiB, most of it "
            f"{max(sizes, key=lambda name: sizes[name])}, and a container receives {_MAX_PARAMETER_BYTES // 1024} KiB "
            "at most",
            fewer if node == "SchemaGen" else "declare less: fewer columns, fewer slices",
        )
