"""Prints a pipeline as JSON as Kubeflow's loader and messages read it; runs in the environment with kfp."""

import json
import sys

from google.protobuf import json_format
from kfp import components
from kfp.kubernetes import kubernetes_executor_config_pb2 as kubernetes


def main(file: str) -> None:
    """Print the pipeline's spec, and the Kubernetes settings of its executors."""
    loaded = components.load_component_from_file(file)
    platform = loaded.platform_spec.platforms["kubernetes"].deployment_spec.executors
    executors = {
        label: json_format.MessageToDict(
            json_format.ParseDict(json_format.MessageToDict(settings), kubernetes.KubernetesExecutorConfig())
        )
        for label, settings in platform.items()
    }
    json.dump({"spec": json_format.MessageToDict(loaded.pipeline_spec), "kubernetes": executors}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
