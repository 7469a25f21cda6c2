"""A small fake of Vertex AI Pipelines: it runs a written spec, each container's command on this machine.

What it knows of the service is what TFX's own sources say of it: how it calls a container, where outputs go, what a
resolver asks for, and that a driver may settle parameters before the cache is looked into.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from pipeline.orchestration import vertex_entrypoint
from tests.support.fakes.fake_gcs import Bucket
from tests.support.runs.command import ROOT, SECONDS
from tests.support.servers.forked_command import ForkedCommand

_SCHEME = re.compile(r"gs://[^/]+/")
_PLACEHOLDER = re.compile(r"\{\{\$\.inputs\.artifacts\['(\w+)'\]\.metadata\['(\w+)'\]\}\}")


@dataclass
class Stored:
    """An artifact.

    Attributes:
      name: the resource's.
      type: such as tfx.Model.
      uri: where it lies.
      maker: Task that has written the artifact.
      run: Run of that task.
      metadata: as the task has written it.
    """

    name: str
    type: str
    uri: str
    maker: str
    run: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Task:
    """A task of a run, after it has ended or been skipped.

    Attributes:
      state: succeeded, cached, failed, or not triggered.
      inputs: by key.
      outputs: by key.
      log: what its processes have written.
    """

    state: str
    inputs: dict[str, list[Stored]] = field(default_factory=dict)
    outputs: dict[str, list[Stored]] = field(default_factory=dict)
    log: str = ""


Edge = tuple[str, str, str]
"""Who has made it, its type, who reads it."""


@dataclass
class Run:
    """A run that has ended.

    Attributes:
      name: the id of the job.
      tasks: all of them, by name.
    """

    name: str
    tasks: dict[str, Task] = field(default_factory=dict)

    def tasks_in_state(self, state: str) -> set[str]:
        """Return the names of the tasks that ended in this state."""
        return {name for name, task in self.tasks.items() if task.state == state}

    def lineage(self, containers: set[str]) -> set[Edge]:
        """Return what the tasks with containers have read."""
        return {
            (artifact.maker, artifact.type.removeprefix("tfx."), name)
            for name, task in self.tasks.items()
            if name in containers
            for several in task.inputs.values()
            for artifact in several
        }


class Service:
    """The service of one project; it keeps artifacts and cached tasks from run to run.

    Args:
      bucket: Bucket with all files.
      environment: Environment variables with which processes find the bucket.
    """

    def __init__(self, bucket: Bucket, environment: Mapping[str, str]) -> None:
        self._bucket = bucket
        self._environment = environment
        self._store: list[Stored] = []
        self._cache: dict[str, dict[str, list[Stored]]] = {}
        self._runs = 0
        self._has_run = False
        self._going: ForkedCommand | None = None

    def run(self, file: Path, to: str | None = None) -> Run:
        """Run a spec.

        Args:
          file: the spec, as `--vertex` writes it.
          to: Last task to run; only its upstream tasks run.
        """
        # A field that the message does not have is an error.
        spec = json_format.ParseDict(yaml.safe_load(file.read_text(encoding="utf-8")), pipeline_spec_pb2.PipelineSpec())
        deployment = json_format.ParseDict(
            json_format.MessageToDict(spec.deployment_spec), pipeline_spec_pb2.PipelineDeploymentConfig()
        )
        self._runs += 1
        run = Run(f"{spec.pipeline_info.name}-{self._runs}")
        tasks = dict(spec.root.dag.tasks)
        for name in _in_order(tasks):
            if to is not None and name not in _leading_to(tasks, to):
                continue
            if any(run.tasks[upstream].state in ("failed", "not triggered") for upstream in _above(tasks[name])):
                run.tasks[name] = Task("not triggered")
                continue
            component = spec.components[tasks[name].component_ref.name]
            inputs = {
                key: run.tasks[source.task_output_artifact.producer_task].outputs[
                    source.task_output_artifact.output_artifact_key
                ]
                for key, source in tasks[name].inputs.artifacts.items()
            }
            executor = deployment.executors[component.executor_label]
            if executor.HasField("resolver"):
                run.tasks[name] = Task("succeeded", inputs, self._resolve(executor.resolver, inputs))
            else:
                call = _Call(spec.default_pipeline_root, run.name, name, tasks[name], component, executor.container)
                run.tasks[name] = self._container(call, inputs)
        return run

    def _resolve(self, resolver: Any, inputs: Mapping[str, list[Stored]]) -> dict[str, list[Stored]]:
        return {
            key: [
                artifact
                for artifact in self._store
                if all(_holds(clause, artifact, inputs) for clause in query.filter.split(" AND "))
            ][-1:]
            for key, query in resolver.output_artifact_queries.items()
        }

    def _container(self, call: _Call, inputs: dict[str, list[Stored]]) -> Task:
        parameters = {key: parameter.runtime_value.constant for key, parameter in call.task.inputs.parameters.items()}
        outputs = {
            key: [self._new(call, key, definition.artifact_type)]
            for key, definition in call.component.output_definitions.artifacts.items()
        }
        message = call.executor_input(inputs, outputs, parameters)
        log = ""
        if call.container.HasField("lifecycle"):
            hook = call.container.lifecycle.pre_cache_check
            code, log = self._process([*hook.command, *hook.args], message)
            if code:
                return Task("failed", inputs, log=log)
            # The executor gets the same message: it has to read the driver's output itself.
            parameters.update(self._output(call).parameter_values)
        key = call.key(inputs, parameters)
        if call.task.caching_options.enable_cache and key in self._cache:
            return Task("cached", inputs, self._cache[key], log)
        for attempt in range(call.task.retry_policy.max_retry_count + 1):
            code, more = self._process([*call.container.command, *call.container.args], message)
            log += f"=== attempt {attempt + 1} ===\n{more}"
            if not code:
                break
        else:
            return Task("failed", inputs, log=log)
        for name, several in self._output(call).artifacts.items():
            for stored, reported in zip(outputs[name], several.artifacts, strict=True):
                assert (reported.name, reported.uri) == (stored.name, stored.uri)
                stored.metadata = json_format.MessageToDict(reported.metadata)
        self._store += [artifact for several in outputs.values() for artifact in several]
        self._cache[key] = outputs
        return Task("succeeded", inputs, outputs, log)

    def _new(self, call: _Call, key: str, schema: Any) -> Stored:
        number = hashlib.sha256(f"{call.folder}/{key}".encode()).hexdigest()[:16]
        name = f"projects/1/locations/us-central1/metadataStores/default/artifacts/{number}"
        title = yaml.safe_load(schema.instance_schema)["title"]
        return Stored(name, title, f"{call.folder}/{key}", call.name, call.run)

    def _output(self, call: _Call) -> Any:
        """Return the ExecutorOutput, as a process has left it."""
        return json_format.Parse(self.read(call.output_file), pipeline_spec_pb2.ExecutorOutput())

    def kill(self) -> None:
        """Kill the running container and all its processes, as when its machine is lost."""
        assert self._going is not None
        self._going.kill()

    def read(self, uri: str) -> bytes:
        """Return an object."""
        return self._bucket.objects[_SCHEME.sub("", uri)]

    def _process(self, line: list[str], message: str) -> tuple[int, str]:
        """Run a container's command in the project's folder, as in the image; return its exit code and output.

        The first command is a new process, all others are forks of the node server.
        """
        filled = [message if word == "{{$}}" else word for word in line]
        assert not [word for word in filled if "{{$" in word and word != message], "a placeholder that nobody fills in"
        python, option, module, *arguments = filled
        assert (python, option, module) == ("python", "-m", vertex_entrypoint.__name__)
        environment = {**os.environ, **self._environment}
        if not self._has_run:
            self._has_run = True
            ended = subprocess.run(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
            return ended.returncode, ended.stdout
        self._going = ForkedCommand(vertex_entrypoint.main, arguments, ROOT, environment)
        code, out, err = self._going.wait(SECONDS)
        return code, out + err


@dataclass(frozen=True)
class _Call:
    """A container task of a run."""

    root: str
    run: str
    name: str
    task: Any
    component: Any
    container: Any

    @property
    def folder(self) -> str:
        return f"{self.root}/123456789/{self.run}/{self.name}_-{len(self.name)}"

    @property
    def output_file(self) -> str:
        return f"{self.folder}/executor_output.json"

    def executor_input(
        self, inputs: Mapping[str, list[Stored]], outputs: Mapping[str, list[Stored]], parameters: Mapping[str, Any]
    ) -> str:
        """Return the ExecutorInput."""
        executor_input = pipeline_spec_pb2.ExecutorInput()
        for key, value in parameters.items():
            executor_input.inputs.parameter_values[key].CopyFrom(value)
        for several, definitions, into in (
            (inputs, self.component.input_definitions, executor_input.inputs),
            (outputs, self.component.output_definitions, executor_input.outputs),
        ):
            for key, artifacts in several.items():
                into.artifacts[key].SetInParent()
                for artifact in artifacts:
                    message = into.artifacts[key].artifacts.add(name=artifact.name, uri=artifact.uri)
                    message.type.CopyFrom(definitions.artifacts[key].artifact_type)
                    message.metadata.update(artifact.metadata)
        executor_input.outputs.output_file = self.output_file
        return json_format.MessageToJson(executor_input)

    def key(self, inputs: Mapping[str, list[Stored]], parameters: Mapping[str, Any]) -> str:
        """Return the cache key: the container, its inputs and its parameters."""
        parts = {
            "container": json_format.MessageToDict(self.container),
            "inputs": {key: [artifact.name for artifact in several] for key, several in inputs.items()},
            "parameters": {key: json_format.MessageToDict(value) for key, value in parameters.items()},
        }
        return json.dumps(parts, sort_keys=True)


def _holds(clause: str, artifact: Stored, inputs: Mapping[str, list[Stored]]) -> bool:
    """Return whether an artifact matches one clause of a resolver's filter."""
    field, _, expected = clause.strip().partition("=")
    if placeholder := _PLACEHOLDER.search(expected):
        # The input may be empty: then the placeholder becomes an empty string.
        [artifact_] = inputs[placeholder[1]] or [None]
        expected = _PLACEHOLDER.sub(str(artifact_.metadata[placeholder[2]]) if artifact_ else "", expected)
    match field.split("."):
        case ["schema_title"]:
            return f'"{artifact.type}"' == expected
        case ["state"]:
            return expected == "LIVE"
        case ["name"]:
            return f'"{artifact.name}"' == expected
        case ["metadata", key, "number_value"]:
            return bool(artifact.metadata.get(key) == float(expected))
    raise AssertionError(f"unsupported clause of a resolver's filter: {clause}")


def _above(task: Any) -> set[str]:
    """Return the tasks that a task waits for."""
    return {
        *task.dependent_tasks,
        *(source.task_output_artifact.producer_task for source in task.inputs.artifacts.values()),
    }


def _in_order(tasks: Mapping[str, Any]) -> Iterator[str]:
    done: set[str] = set()
    while len(done) < len(tasks):
        ready = sorted(name for name in tasks.keys() - done if _above(tasks[name]) <= done)
        assert ready, "tasks that wait for each other"
        yield from ready
        done |= set(ready)


def _leading_to(tasks: Mapping[str, Any], name: str) -> set[str]:
    return {name}.union(*(_leading_to(tasks, upstream) for upstream in _above(tasks[name])))
