"""The program of the flex template: it submits the job of a node again, with other machines, workers or labels.

Dataflow's launcher starts it with the parameters of the launch and with options of Beam, such as --template_location
and --worker_machine_type. The graph, and the options that the launch does not name, are those of the template, which
the node's run has written. Neither the config nor the data is read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

_KEPT = (
    *("experiments", "dataflow_service_options", "labels", "service_account_email", "network", "subnetwork"),
    *("use_public_ips", "machine_type", "disk_size_gb", "num_workers", "max_num_workers", "autoscaling_algorithm"),
    *("sdk_container_image", "sdk_location"),
)
"""Options of the template that the launch may override. Its names and folders belong to the earlier job."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Submit the job, or write it to --template_location."""
    parser = argparse.ArgumentParser(description="Submit the job of a template again.")
    parser.add_argument("--job", required=True, help="the template: gs://… of --dataflow_job_file")
    parameters, beam_args = parser.parse_known_args(arguments)
    FileSystems.set_options(PipelineOptions(beam_args))
    template = json.loads(_read(parameters.job))
    earlier = template["environment"]["sdkPipelineOptions"]["options"]
    kept = {name: earlier[name] for name in _KEPT if name in earlier}
    launched = PipelineOptions(beam_args).get_all_options(drop_default=True)
    pipeline = beam_runner_api_pb2.Pipeline.FromString(_read(earlier["pipelineUrl"]))
    with tempfile.TemporaryDirectory() as folder:
        _fetch_files(pipeline, Path(folder))
        DataflowRunner().run_pipeline(None, PipelineOptions.from_dictionary({**kept, **launched}), pipeline)


def _fetch_files(pipeline: Any, folder: Path) -> None:
    """Copy the files of the workers to a folder, because Beam stages only files of this machine."""
    for environment in pipeline.components.environments.values():
        for dependency in environment.dependencies:
            staged = beam_runner_api_pb2.ArtifactUrlPayload.FromString(dependency.type_payload)
            path = folder / staged.sha256
            path.write_bytes(_read(staged.url))
            local = beam_runner_api_pb2.ArtifactFilePayload(path=str(path), sha256=staged.sha256)
            dependency.type_urn = common_urns.artifact_types.FILE.urn
            dependency.type_payload = local.SerializeToString()


def _read(url: str) -> bytes:
    with FileSystems.open(url) as file:
        return bytes(file.read())


if __name__ == "__main__":
    main()
