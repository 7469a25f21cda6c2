"""Kubeflow Pipelines without a cluster: reads specs with Kubeflow's loader and runs containers as processes."""

from __future__ import annotations

import graphlib
import json
import re
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.command import ROOT, command, command_process

PYTHON = ROOT / ".cache" / "kubeflow" / "bin" / "python"
needs_kfp = pytest.mark.needs("kfp")
_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}")
_INPUT = re.compile(r"\.inputs\.parameters\['(\w+)'\]")
_OUTPUT = re.compile(r"\.outputs\.parameters\['(\w+)'\]\.output_file")
_EXECUTOR_INPUT = "{{$}}"
_EQUALS = re.compile(r"inputs\.parameter_values\['(\w+)'\] == '(\w*)'")


@dataclass(frozen=True)
class Spec:
    """A compiled pipeline, as Kubeflow's loader reads it.

    Attributes:
      file: its file.
      spec: its PipelineSpec, as JSON.
      kubernetes: executor → its KubernetesExecutorConfig, as JSON.
    """

    file: Path
    spec: dict[str, Any]
    kubernetes: dict[str, Any]

    def container(self, name: str) -> dict[str, Any]:
        """Return the container of a component, or of the task of that name."""
        label = self.spec["components"][f"comp-{name}"]["executorLabel"]
        container: dict[str, Any] = self.spec["deploymentSpec"]["executors"][label]["container"]
        return container


def read(file: Path) -> Spec:
    """Read a pipeline with kfp's loader, which rejects unknown fields."""
    program = Path(__file__).parents[1] / "programs" / "kubeflow_spec.py"
    ended = subprocess.run([PYTHON, program, file], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return Spec(file, **json.loads(ended.stdout))


def make_inputs(file: Path, folder: Path, *tasks: str) -> dict[str, str]:
    """Return task → executor input, as kfp's local runner makes it; the outputs of a task are in folder/task."""
    inputs: dict[str, str] = _run_task_program("input", file, folder, *tasks)
    return inputs


def read_outputs(file: Path, inputs: dict[str, str], scratch: Path) -> dict[str, dict[str, Any]]:
    """Return task → name → type, uri, metadata of the artifacts that kfp's local runner reads after the tasks.

    ClassificationMetrics have `logged` as well: what kfp's own methods write for their curve and matrix.

    Args:
      file: The pipeline.
      inputs: Task → executor input.
      scratch: Folder for a temporary file.
    """
    given = scratch / "inputs.json"
    given.write_text(json.dumps(inputs))
    outputs: dict[str, dict[str, Any]] = _run_task_program("outputs", file, given)
    return outputs


def _run_task_program(action: str, *words: str | Path) -> Any:
    program = Path(__file__).parents[1] / "programs" / "kubeflow_task.py"
    ended = subprocess.run([PYTHON, program, action, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@dataclass
class Cluster:
    """Runs the tasks of a pipeline in sequence; containers are commands in this project's folder, as in its image.

    The first container is a new process, all others are forks of the node server.

    Attributes:
      folder: Scratch folder.
      secrets: secret and key → value.
      ran: Names of the executed tasks, in order.
      artifacts: Task → its artifacts, as kfp reads them.
    """

    folder: Path
    secrets: Mapping[tuple[str, str], str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self, pipeline: Spec, **parameters: str) -> str:
        """Run a pipeline with these parameters; return the run's id."""
        run = str(uuid.uuid4())
        root = pipeline.spec["root"]
        known = root["inputDefinitions"]["parameters"]
        assert set(parameters) <= set(known)
        arguments = {name: parameters.get(name, definition["defaultValue"]) for name, definition in known.items()}
        self._graph(pipeline, root["dag"]["tasks"], arguments, run)
        return run

    def _graph(self, pipeline: Spec, tasks: dict[str, Any], parameters: dict[str, str], run: str) -> None:
        order = graphlib.TopologicalSorter({name: task.get("dependentTasks", ()) for name, task in tasks.items()})
        put_out: dict[str, dict[str, str]] = {}
        for name in order.static_order():
            task = tasks[name]
            assert task["taskInfo"]["name"] == name
            inputs = {
                key: self._value(source, parameters, put_out)
                for key, source in task.get("inputs", {}).get("parameters", {}).items()
            }
            condition = task.get("triggerPolicy", {}).get("condition")
            if condition is not None:
                key, expected = _EQUALS.fullmatch(condition).groups()
                if inputs[key] != expected:
                    continue
            component = pipeline.spec["components"][task["componentRef"]["name"]]
            assert set(inputs) == set(component.get("inputDefinitions", {}).get("parameters", {}))
            if "dag" in component:
                self._graph(pipeline, component["dag"]["tasks"], inputs, run)
            else:
                put_out[name] = self._container(pipeline, name, component["executorLabel"], inputs, run)

    @staticmethod
    def _value(reference: dict[str, Any], parameters: dict[str, str], put_out: dict[str, dict[str, str]]) -> str:
        if "componentInputParameter" in reference:
            return parameters[reference["componentInputParameter"]]
        source = reference["taskOutputParameter"]
        return put_out[source["producerTask"]][source["outputParameterKey"]]

    def _container(self, pipeline: Spec, name: str, label: str, inputs: dict[str, str], run: str) -> dict[str, str]:
        container = pipeline.spec["deploymentSpec"]["executors"][label]["container"]
        kubernetes = pipeline.kubernetes[label]
        outputs: dict[str, Path] = {}
        executor_input = ""
        if _EXECUTOR_INPUT in container["args"]:
            executor_input = make_inputs(pipeline.file, self.folder / run, name)[name]

        def fill_placeholder(placeholder: re.Match[str]) -> str:
            if placeholder[1] == ".pipeline_job_uuid":
                return run
            if not placeholder[1]:
                return executor_input
            if input_name := _INPUT.fullmatch(placeholder[1]):
                return inputs[input_name[1]]
            key = _OUTPUT.fullmatch(placeholder[1])[1]
            outputs[key] = self.folder / run / name / key
            return str(outputs[key])

        first, *words = [
            _PLACEHOLDER.sub(fill_placeholder, word) for word in (*container["command"], *container["args"])
        ]
        for output in outputs.values():
            output.parent.mkdir(parents=True)
        environment = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        for secret in kubernetes.get("secretAsEnv", ()):
            for key in secret["keyToEnv"]:
                environment[key["envVar"]] = self.secrets[secret["secretName"], key["secretKey"]]
        program, *arguments = words
        assert (first, program) == ("python", "runner.py")
        self.execute(name, arguments, environment)
        self.ran.append(name)
        if executor_input:
            self.artifacts |= read_outputs(pipeline.file, {name: executor_input}, self.folder)
        return {key: output.read_text() for key, output in outputs.items()}

    def execute(self, task: str, arguments: list[str], environment: dict[str, str]) -> None:
        """Run `python runner.py` with these arguments, and check that it succeeds."""
        ended = (command if self.ran else command_process)(*arguments, environment=environment)
        assert ended.exit_code == 0, (task, ended.err[-4000:])
