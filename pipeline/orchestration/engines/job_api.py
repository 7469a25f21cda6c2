"""A guard process that cancels a job through Beam's job API when the node that has submitted it has ended.

This file imports only the standard library, and grpc once it cancels, so that the guard starts in a twentieth of a
second.

Source: JobService in beam_job_api.proto.
"""

from __future__ import annotations

import sys

_SECONDS = 60.0
_CANCEL = "/org.apache.beam.model.job_management.v1.JobService/Cancel"


def _guard(endpoint: str) -> None:
    """Read a serialized CancelJobRequest in hexadecimal from stdin, and send it if stdin ends before another line."""
    request = sys.stdin.readline().strip()
    if request and not sys.stdin.readline():
        import grpc

        sys.stderr.write("the node has ended: its job is cancelled\n")
        with grpc.insecure_channel(endpoint) as channel:
            channel.unary_unary(_CANCEL)(bytes.fromhex(request), timeout=_SECONDS)


if __name__ == "__main__":
    _guard(sys.argv[1])
