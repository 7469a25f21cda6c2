"""A job service that runs nothing: it writes down what is submitted, and says that it is done.

python recording_job_service.py RECORD … [--job-port PORT] …

Below the folder RECORD, `command.json` has the program's own arguments, and `<n>.prepare` each PrepareJobRequest. The
first line on stdout is its address. It takes the arguments of Beam's job servers, so that it can replace java.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
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

# What Beam's Java job servers say of themselves; Python sends no option that they don't know.
_KNOWN = {"flink_master": "STRING", "parallelism": "INTEGER", "spark_master_url": "STRING"}


class _Recorder(  # type: ignore[misc]
    beam_job_api_pb2_grpc.JobServiceServicer, beam_artifact_api_pb2_grpc.ArtifactStagingServiceServicer
):
    def __init__(self, record: Path) -> None:
        self._record = record
        self.address = ""

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
        return beam_job_api_pb2.RunJobResponse(job_id=request.preparation_id)

    def GetState(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _state("DONE")

    def GetStateStream(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        yield from map(_state, ("RUNNING", "DONE"))

    def GetMessageStream(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        yield beam_job_api_pb2.JobMessagesResponse(state_response=_state("DONE"))

    def GetJobMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return beam_job_api_pb2.GetJobMetricsResponse()


def _state(name: str) -> Any:
    return beam_job_api_pb2.JobStateEvent(state=beam_job_api_pb2.JobState.Enum.Value(name))


def _main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("record", type=Path)
    parser.add_argument("--job-port", default="0")
    options, _ = parser.parse_known_args(arguments)
    (options.record / "command.json").write_text(json.dumps(arguments[1:]))
    recorder = _Recorder(options.record)
    server = grpc.server(futures.ThreadPoolExecutor())
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(recorder, server)
    beam_artifact_api_pb2_grpc.add_ArtifactStagingServiceServicer_to_server(recorder, server)
    recorder.address = f"localhost:{server.add_insecure_port(f'localhost:{options.job_port}')}"
    server.start()
    sys.stdout.write(recorder.address + "\n")
    sys.stdout.flush()
    server.wait_for_termination()


if __name__ == "__main__":
    _main(sys.argv[1:])
