"""CustomJobs of Vertex AI, submitted, watched and deleted through its API. Their logs are in Cloud Logging."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import google.auth.exceptions
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.cloud.aiplatform_v1 import types
from google.cloud.aiplatform_v1.services.job_service import JobServiceClient
from google.protobuf import json_format

from components.base.errors import InputError, MachineError
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import JobStatus, State

_SECONDS = 60.0
"""Time limit of a request."""
_STATES = {
    types.JobState.JOB_STATE_QUEUED: State.WAITING,
    types.JobState.JOB_STATE_PENDING: State.WAITING,
    types.JobState.JOB_STATE_SUCCEEDED: State.SUCCEEDED,
    types.JobState.JOB_STATE_FAILED: State.FAILED,
    types.JobState.JOB_STATE_CANCELLING: State.FAILED,
    types.JobState.JOB_STATE_CANCELLED: State.FAILED,
    types.JobState.JOB_STATE_EXPIRED: State.FAILED,
}
"""Other states count as running."""
_CONSOLE = "https://console.cloud.google.com/vertex-ai"


class VertexJobs:
    """The CustomJobs of one project and region.

    The name of a CustomJob is a number that is unknown before it exists, so a job is found by its display name.

    Args:
      where: Project, region and endpoint.
    """

    def __init__(self, where: WhereConfig) -> None:
        self._where = where
        self._parent = f"projects/{where.project}/locations/{where.region}"
        with self._translate_errors():
            address = where.endpoint or f"https://{where.region}-aiplatform.googleapis.com"
            self._client = JobServiceClient(transport="rest", client_options=ClientOptions(api_endpoint=address))

    def submit(self, manifest: dict[str, Any]) -> None:
        """Create a job.

        Raises:
          InputError: If credentials are missing, or the service refuses the job.
          MachineError: If the service does not answer.
        """
        job = types.CustomJob(json_format.ParseDict(manifest, types.CustomJob.pb(types.CustomJob())))
        with self._translate_errors():
            created = self._client.create_custom_job(parent=self._parent, custom_job=job, timeout=_SECONDS)
        number, where = created.name.rpartition("/")[2], self._where
        page = f"{_CONSOLE}/locations/{where.region}/training/{number}?project={where.project}"
        logging.info("job %s, with the logs of its tasks: %s", created.display_name, page)

    def status(self, name: str) -> JobStatus | None:
        """Return the status of the newest job with a display name; None if it does not exist.

        Raises:
          InputError: If credentials are missing, or the service refuses the request.
          MachineError: If the service does not answer.
        """
        job = self._find(name)
        if job is None:
            return None
        state = types.JobState(job.state)
        return JobStatus(_STATES.get(state, State.RUNNING), job.error.message or state.name, {"job": state.name})

    def delete(self, name: str) -> None:
        """Cancel a job, or delete it if it has ended; nothing happens if there is none.

        Raises:
          InputError: If credentials are missing, or the service refuses the request.
          MachineError: If the service does not answer.
        """
        job = self._find(name)
        if job is None:
            return
        with self._translate_errors():
            if job.end_time:
                self._client.delete_custom_job(name=job.name, timeout=_SECONDS)
            else:
                self._client.cancel_custom_job(name=job.name, timeout=_SECONDS)

    def join_logs(self, seconds: float) -> None:
        """Return at once, because the logs are in Cloud Logging."""

    def _find(self, name: str) -> types.CustomJob | None:
        request = types.ListCustomJobsRequest(parent=self._parent, filter=f'display_name="{name}"')
        with self._translate_errors():
            jobs = list(self._client.list_custom_jobs(request, timeout=_SECONDS))
        return max(jobs, key=lambda job: job.create_time, default=None)

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        where = f"training.where: Vertex AI in {self._parent}"
        try:
            yield
        except google.auth.exceptions.DefaultCredentialsError as error:
            raise InputError(
                f"{where}: expected credentials, received none",
                "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
            ) from error
        except (exceptions.ServerError, exceptions.TooManyRequests, exceptions.RetryError, OSError) as error:
            raise MachineError(
                f"{where}: expected an answer, received {error}",
                "check the network; --resume the run: it finds the job again",
            ) from error
        except (exceptions.GoogleAPICallError, google.auth.exceptions.GoogleAuthError) as error:
            raise InputError(
                f"{where}: expected the request to be accepted, received {error}",
                "grant the run's account the role Vertex AI User, and check training.where",
            ) from error
