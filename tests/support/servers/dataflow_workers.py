"""Runs the jobs of Dataflow on Prism, exactly as they are submitted.

Only the way in which a worker starts differs: the pipeline names the container image, and here a pool starts the
image's worker in a root with the image's content (`worker_container`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.portability.portable_runner import JobServiceHandle, PipelineResult
from google.protobuf import json_format, struct_pb2

from tests.support.fakes.fake_gcs import Bucket

_URL, _FILE = common_urns.artifact_types.URL.urn, common_urns.artifact_types.FILE.urn


@dataclass(frozen=True)
class DataflowWorkers:
    """Runs jobs.

    Attributes:
      bucket: Bucket with the staged files.
      job_service: Address of Prism.
      pool: Address of the pool.
      folder: Folder for the staged files that the workers get.
    """

    bucket: Bucket
    job_service: str
    pool: str
    folder: Path

    def run(self, job: dict[str, Any]) -> None:
        """Run a job to its end.

        Args:
          job: The job, as it was submitted or as a template contains it.

        Raises:
          RuntimeError: If the job fails.
        """
        pipeline, options = self.read(job), read_options(job)
        for environment in pipeline.components.environments.values():
            self._prepare(environment)
        with grpc.insecure_channel(self.job_service) as channel:
            service = beam_job_api_pb2_grpc.JobServiceStub(channel)
            handle = JobServiceHandle(service, PipelineOptions([]))
            request = beam_job_api_pb2.PrepareJobRequest(
                job_name=job["name"], pipeline=pipeline, pipeline_options=_encode(options)
            )
            prepared = service.Prepare(request)
            handle.stage(pipeline, prepared.artifact_staging_endpoint.url, prepared.staging_session_token)
            PipelineResult(service, *handle.run(prepared.preparation_id)).wait_until_finish()

    def read(self, job: dict[str, Any]) -> Any:
        """Return the staged pipeline of a job; check it against the digest in the job."""
        options = read_options(job)
        content = self.read_object(options["pipelineUrl"])
        assert hashlib.sha256(content).hexdigest() == options["pipelineProtoHash"]
        return beam_runner_api_pb2.Pipeline.FromString(content)

    def read_object(self, url: str) -> bytes:
        """Return the content of an object of the bucket."""
        return self.bucket.objects[url.removeprefix("gs://").partition("/")[2]]

    def _prepare(self, environment: Any) -> None:
        """Let the pool start the workers, with the staged files from a local folder."""
        assert environment.urn == common_urns.environments.DOCKER.urn
        environment.urn = common_urns.environments.EXTERNAL.urn
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=self.pool)
        environment.payload = beam_runner_api_pb2.ExternalPayload(endpoint=endpoint).SerializeToString()
        for dependency in environment.dependencies:
            assert dependency.type_urn == _URL
            url = beam_runner_api_pb2.ArtifactUrlPayload.FromString(dependency.type_payload)
            content = self.read_object(url.url)
            assert hashlib.sha256(content).hexdigest() == url.sha256
            path = self.folder / url.sha256
            path.write_bytes(content)
            payload = beam_runner_api_pb2.ArtifactFilePayload(path=str(path), sha256=url.sha256)
            dependency.type_urn, dependency.type_payload = _FILE, payload.SerializeToString()


def read_options(job: dict[str, Any]) -> dict[str, Any]:
    """Return the pipeline options of a job by name."""
    options: dict[str, Any] = job["environment"]["sdkPipelineOptions"]["options"]
    return options


def _encode(options: dict[str, Any]) -> Any:
    """Return options in the form of Beam's job API."""
    # The API takes integers as strings.
    values = {f"beam:option:{name}:v1": str(value) if type(value) is int else value for name, value in options.items()}
    return json_format.ParseDict(values, struct_pb2.Struct())
