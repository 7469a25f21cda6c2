"""Compile a pipeline for Vertex AI Pipelines with TFX's compiler. The containers start `vertex_entrypoint`."""

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
"""Limit for the parameters of a node. Together with the names and URIs of artifacts, they are one argument of a
process, and Linux limits an argument to 128 KiB."""
_MOUNTED = "/gcs/"
"""Folder in which the service's containers see buckets as subfolders."""


def section_of(config: Config) -> VertexPipelinesConfig:
    """Return the section `vertex` of a config.

    Raises:
      InputError: The section is missing.
    """
    if config.vertex is None:
        raise InputError(
            "--vertex: expected a section vertex in the config, received none",
            "add vertex: {project: …, region: …, image: …, root: gs://…}; see docs/how-to/vertex.md",
        )
    return config.vertex


def check(config: Config) -> None:
    """Check that Vertex AI Pipelines supports the config.

    Raises:
      InputError: The service does not support the config, or the section `vertex` is missing.
    """
    section_of(config)
    name = config.pipeline.name
    if not name[0].isalpha() or "_" in name:
        raise InputError(
            f"pipeline.name: expected a letter, then lower-case letters, digits and - for Vertex AI, received {name}",
            f"--set pipeline.name={name.replace('_', '-').lstrip('-0123456789') or 'pipeline'}",
        )
    if config.serving.check in ("docker", "kubernetes"):
        raise InputError(
            f"serving.check: expected server on Vertex AI, received {config.serving.check}, which the service's "
            "containers cannot start",
            "--set serving.check=server, which runs the server in the node's container",
        )
    if config.push.approval == "required":
        raise InputError(
            "push.approval: expected none on Vertex AI Pipelines, received required, which is recorded in a metadata "
            "store that the service does not have",
            "--set push.approval=none --set push.stage_on_push=none, and make the version stable by `models promote`",
        )
    for node in config.optional_nodes():
        node.check_managed(config)


def write(config: Config, file: Path) -> dict[str, Any]:
    """Compile a config with a `vertex` section, and write the pipeline's spec as YAML.

    Args:
      config: Config of the pipeline, which `check` has accepted.
      file: Path of the spec, which must end in .yaml or .yml. An existing file is replaced.

    Returns:
      The spec.

    Raises:
      InputError: The parameters of a node are too large, or the file cannot be written.
    """
    section = section_of(config)
    if file.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output: expected FILE.yaml, received {file}", "name a file that ends in .yaml")
    spec = _compile(config, section)
    try:
        write_atomically(file, yaml.safe_dump(spec, sort_keys=True, allow_unicode=True))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return spec


def list_warnings(config: Config) -> list[str]:
    """Return warnings about local paths and addresses, which the containers may not be able to reach."""
    local = [(f"{field}: {path}", "its rows") for field, path in config.data.places]
    if config.push.directory is not None:
        local.append((f"push.directory: {config.push.directory}", "pushed models, which are lost with the container"))
    for field, path in (
        ("features.preprocessing_fn", config.features.preprocessing_fn),
        ("model.run_fn", config.model.run_fn),
        ("model.build", config.model.build),
        ("model.train", config.model.train),
    ):
        # A module by import path may be installed in the image.
        if path is not None and ".py:" in path:
            local.append((f"{field}: {path}", "your code"))
    lines = [
        f"{field} is on this machine: the containers see {content} only if the image has it under this path"
        for field, content in local
        if not is_remote(path := field.partition(": ")[2]) and not path.startswith(_MOUNTED)
    ]
    lines += [
        f"runtime.engine: {address} is on this machine, which containers cannot reach"
        for address in engines.addresses(config.runtime)
        if is_here(address)
    ]
    return lines


def _compile(config: Config, section: VertexPipelinesConfig) -> dict[str, Any]:
    # Imported here because the caller must set TensorFlow's environment before TFX is imported.
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
            _set_driver(executor.container, name_utils.get_full_name(driver), config.pipeline.name)
        if name in section.resources:
            _set_resources(executor.container.resources, section.resources[name])
        if config.schedule is not None and config.schedule.retries:
            _set_retries(task.retry_policy, config.schedule)
    spec.deployment_spec.Clear()
    spec.deployment_spec.update(json_format.MessageToDict(deployment))
    # The working directory of the image has the same content as the working directory here.
    content: dict[str, Any] = without_root(json_format.MessageToDict(spec), Path.cwd(), ".")
    return content


def _with_uris(config: Config, section: VertexPipelinesConfig) -> Config:
    """Return a config with artifacts in the bucket of the service, and pushed models too unless it names a folder."""
    root = section.root.rstrip("/")
    runtime = config.runtime.model_copy(update={"artifacts": root})
    push = config.push.model_copy(update={"directory": config.push.directory or f"{root}/pushed"})
    return config.model_copy(update={"runtime": runtime, "push": push})


def _set_driver(container: Any, driver: str, pipeline: str) -> None:
    """Make the service call our driver instead of TFX's before it reads its cache, also if a query reads the data."""
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


def _set_retries(policy: Any, schedule: ScheduleConfig) -> None:
    policy.max_retry_count = schedule.retries
    policy.backoff_duration.seconds = round(schedule.retry_minutes * 60)
    policy.backoff_factor = 1


def _check_size(node: str, task: Any) -> None:
    """Check that a node's parameters fit into one argument of a process, because the container receives them in one."""
    sizes = {
        name: len(json.dumps(parameter.runtime_value.constant.string_value))
        for name, parameter in task.inputs.parameters.items()
    }
    if sum(sizes.values()) > _MAX_PARAMETER_BYTES:
        raise InputError(
            f"{node}: expected at most {_MAX_PARAMETER_BYTES // 1024} KiB of parameters for a container, received "
            f"{sum(sizes.values()) / 1024:.0f} KiB; the largest is {max(sizes, key=lambda name: sizes[name])}",
            "remove schema.path, to infer the schema, or shorten it"
            if node == "SchemaGen"
            else "declare fewer columns or fewer slices",
        )
