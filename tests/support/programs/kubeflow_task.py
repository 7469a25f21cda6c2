"""Tasks of a pipeline as Kubeflow's local runner sees them; runs in the environment with kfp.

`kubeflow_task.py input FILE FOLDER TASK…` prints task → executor input; the outputs of a task are in FOLDER/TASK.
`kubeflow_task.py outputs FILE INPUTS` prints task → artifacts; INPUTS is a file with the result of the first command.
"""

import json
import sys
from pathlib import Path

from google.protobuf import json_format
from kfp import components, dsl
from kfp.local import executor_input_utils, executor_output_utils
from kfp.pipeline_spec import pipeline_spec_pb2


def main(action: str, file: str, place: str, *tasks: str) -> None:
    """Print what kfp passes to tasks, or what it reads from their outputs."""
    known = components.load_component_from_file(file).pipeline_spec.components
    if action == "input":
        results = {task: make_input(known[f"comp-{task}"], Path(place, task)) for task in tasks}
    else:
        given = json.loads(Path(place).read_text())
        results = {task: read_outputs(known[f"comp-{task}"], executor_input) for task, executor_input in given.items()}
    json.dump(results, sys.stdout)


def make_input(component: pipeline_spec_pb2.ComponentSpec, folder: Path) -> str:
    """Return the executor input of a task."""
    message = executor_input_utils.construct_executor_input(component, {}, str(folder), block_input_artifact=True)
    return json_format.MessageToJson(message)


def read_outputs(component: pipeline_spec_pb2.ComponentSpec, executor_input: str) -> dict[str, dict[str, object]]:
    """Return name → type, uri and metadata of a task's artifacts, as instances of kfp's classes have them."""
    message = json_format.Parse(executor_input, pipeline_spec_pb2.ExecutorInput())
    return {
        name: {
            "type": type(artifact).__name__,
            "uri": artifact.uri,
            "metadata": artifact.metadata,
            "logged": log_again(artifact) if isinstance(artifact, dsl.ClassificationMetrics) else None,
        }
        for name, artifact in executor_output_utils.get_outputs_for_task(message, component).items()
    }


def log_again(artifact: dsl.ClassificationMetrics) -> dict[str, object]:
    """Return the metadata that kfp's own methods write for the curve and the matrix of an artifact."""
    metrics, shown = dsl.ClassificationMetrics(), artifact.metadata
    names = ("falsePositiveRate", "recall", "confidenceThreshold")
    metrics.log_roc_curve(*([point[name] for point in shown["confidenceMetrics"]] for name in names))
    matrix = shown["confusionMatrix"]
    categories = [category["displayName"] for category in matrix["annotationSpecs"]]
    metrics.log_confusion_matrix(categories, [row["row"] for row in matrix["rows"]])
    return metrics.metadata


if __name__ == "__main__":
    main(*sys.argv[1:])
