"""A job service that records submitted jobs and reports them as done without running them.

python recording_job_service.py RECORD … [--job-port PORT] …

Below the folder RECORD, `command.json` has the program's own arguments, and `<n>.prepare` each PrepareJobRequest. The
first line on stdout is its address. It takes the arguments of Beam's job servers, so that it can replace java.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    endpoints_pb2,
)
from google.protobuf import json_format

# The options that Beam's Java job servers describe; Beam's Python SDK sends only options described here.
_KNOWN = {"flink_master": "STRING", "parallelism": "INTEGER", "spark_master_url": "STRING"}


class Recorder(  # type: ignore[misc]
    beam_job_api_pb2_grpc.JobServiceServicer, beam_artifact_api_pb2_grpc.ArtifactStagingServiceServicer
):
    """The service.

    Args:
      record: the folder.
      ends: (final state, error text) of the jobs, in order. All later jobs are done.
      on_run: Function that is called with the name of a started job.
    """

    def __init__(
        self, record: Path, ends: Sequence[tuple[str, str]] = (), on_run: Callable[[str], None] | None = None
    ) -> None:
        self._record = record
        self._ends = ends
        self._on_run = on_run
        self.cancelled: list[str] = []
        self.address = ""

    def _end(self, job: str) -> tuple[str, str]:
        return self._ends[int(job)] if int(job) < len(self._ends) else ("DONE", "")

    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:  # noqa: N802 - Beam's name
        types = beam_job_api_pb2.PipelineOptionType.Enum
        known = [
            beam_job_api_pb2.PipelineOptionDescriptor(name=name, type=types.Value(kind))
            for name, kind in _KNOWN.items()
        ]
        return beam_job_api_pb2.DescribePipelineOptionsResponse(options=known)

    def Prepare(self, request: Any, context: Any) -> Any:  # noqa: N802
        number = len(list(self._record.glob("*.prepare")))
        (self._record / f"{number}.prepare").write_bytes(request.SerializeToString())
        return beam_job_api_pb2.PrepareJobResponse(
            preparation_id=str(number),
            staging_session_token="token",  # noqa: S106 - any
            artifact_staging_endpoint=endpoints_pb2.ApiServiceDescriptor(url=self.address),
        )

    def ReverseArtifactRetrievalService(self, answers: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        return iter(())

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._on_run:
            self._on_run(names(self._record)[int(request.preparation_id)])
        return beam_job_api_pb2.RunJobResponse(job_id=request.preparation_id)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cancelled.append(request.job_id)
        return beam_job_api_pb2.CancelJobResponse()

    def GetState(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _state(self._end(request.job_id)[0])

    def GetStateStream(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        yield from map(_state, ("RUNNING", self._end(request.job_id)[0]))

    def GetMessageStream(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        state, error = self._end(request.job_id)
        if error:
            message = beam_job_api_pb2.JobMessage(importance="JOB_MESSAGE_ERROR", message_text=error)
            yield beam_job_api_pb2.JobMessagesResponse(message_response=message)
        yield beam_job_api_pb2.JobMessagesResponse(state_response=_state(state))

    def GetJobMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return beam_job_api_pb2.GetJobMetricsResponse()


def names(record: Path) -> list[str]:
    """Return the names of the submitted jobs, in order."""
    requests = [
        beam_job_api_pb2.PrepareJobRequest.FromString(file.read_bytes()) for file in sorted(record.glob("*.prepare"))
    ]
    return [json_format.MessageToDict(request.pipeline_options)["beam:option:job_name:v1"] for request in requests]


def serve(recorder: Recorder, port: str = "0") -> grpc.Server:
    """Start the service, and set its address."""
    server = grpc.server(futures.ThreadPoolExecutor())
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(recorder, server)
    beam_artifact_api_pb2_grpc.add_ArtifactStagingServiceServicer_to_server(recorder, server)
    recorder.address = f"localhost:{server.add_insecure_port(f'localhost:{port}')}"
    server.start()
    return server


def _state(name: str) -> Any:
    return beam_job_api_pb2.JobStateEvent(state=beam_job_api_pb2.JobState.Enum.Value(name))


def _main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("record", type=Path)
    parser.add_argument("--job-port", default="0")
    options, _ = parser.parse_known_args(arguments)
    (options.record / "command.json").write_text(json.dumps(arguments[1:]))
    recorder = Recorder(options.record)
    server = serve(recorder, options.job_port)
    sys.stdout.write(recorder.address + "\n")
    sys.stdout.flush()
    server.wait_for_termination()


if __name__ == "__main__":
    _main(sys.argv[1:])
