"""Submit a compiled pipeline to Vertex AI Pipelines, as a run or as a schedule that replaces the earlier schedule.

This module is separate from `vertex`, because Google's clients take a second to import and print warnings about the
Python version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, time, timezone
from typing import Any

import google.auth.exceptions
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.cloud.aiplatform_v1 import types
from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient
from google.cloud.aiplatform_v1.services.schedule_service import ScheduleServiceClient

from components.base.errors import InputError, MachineError
from pipeline.authoring.config import Config
from pipeline.authoring.config.orchestrators import ScheduleConfig, VertexPipelinesConfig
from pipeline.orchestration.vertex import section_of

_SECONDS = 60.0
"""Time limit for a request."""


def submit(config: Config, spec: dict[str, Any]) -> list[str]:
    """Start a run, or create a schedule if the config has one.

    The generated client of the service is used, because the high-level client creates buckets and has global state.

    Args:
      config: Config of the pipeline.
      spec: Spec of the pipeline, which `vertex.write` has returned.

    Returns:
      One line about the run or schedule, and one for each setting of the schedule that the service does not support.

    Raises:
      InputError: No credentials were found, the service refuses the pipeline, or it does not support the schedule.
      MachineError: The service does not answer.
    """
    section, name = section_of(config), config.pipeline.name
    job = types.PipelineJob(
        display_name=name,
        pipeline_spec=spec,
        labels=section.labels,
        runtime_config=types.PipelineJob.RuntimeConfig(gcs_output_directory=section.root),
        service_account=section.service_account or "",
        network=section.network or "",
    )
    with _translate_errors(section):
        if config.schedule is None:
            return [_start(section, name, job)]
        return [_replace_schedule(section, config.schedule, name, job), *_list_unsupported(config.schedule)]


def _start(section: VertexPipelinesConfig, name: str, job: types.PipelineJob) -> str:
    # Named as by Vertex AI's high-level client: the pipeline and the time.
    run = f"{name}-{datetime.now(timezone.utc):%Y%m%d%H%M%S}"
    client = PipelineServiceClient(transport="rest", client_options=_make_client_options(section))
    client.create_pipeline_job(parent=_make_parent(section), pipeline_job=job, pipeline_job_id=run, timeout=_SECONDS)
    return f"run {run}: {_CONSOLE}/locations/{section.region}/pipelines/runs/{run}?project={section.project}"


def _replace_schedule(
    section: VertexPipelinesConfig, schedule: ScheduleConfig, name: str, job: types.PipelineJob
) -> str:
    if schedule.span == "date":
        raise InputError(
            "schedule.span: expected newest, received date: Vertex AI does not pass a run its scheduled day",
            "--set schedule.span=newest, or schedule the pipeline with --airflow",
        )
    client = ScheduleServiceClient(transport="rest", client_options=_make_client_options(section))
    earlier = list(
        client.list_schedules(
            types.ListSchedulesRequest(parent=_make_parent(section), filter=f'display_name="{name}"'), timeout=_SECONDS
        )
    )
    start = datetime.combine(schedule.start, time(), timezone.utc)
    created = client.create_schedule(
        parent=_make_parent(section),
        schedule=types.Schedule(
            display_name=name,
            cron=schedule.cron,
            start_time=start if start > datetime.now(timezone.utc) else None,
            # The first limits the requests to create a run, the second the active runs.
            max_concurrent_run_count=1,
            max_concurrent_active_run_count=1,
            create_pipeline_job_request=types.CreatePipelineJobRequest(parent=_make_parent(section), pipeline_job=job),
        ),
        timeout=_SECONDS,
    )
    # Deleted last, so that the pipeline keeps its earlier schedule if the service refuses the new schedule.
    for old in earlier:
        client.delete_schedule(name=old.name, timeout=_SECONDS)
    instead = f", instead of {len(earlier)} earlier" if earlier else ""
    number = created.name.rpartition("/")[2]
    return (
        f"schedule {number}, {created.cron}{instead}: "
        f"{_CONSOLE}/locations/{section.region}/pipelines/schedules/{number}?project={section.project}"
    )


def _list_unsupported(schedule: ScheduleConfig) -> Iterator[str]:
    if schedule.catch_up:
        yield "note: schedule.catch_up: Vertex AI begins with the next scheduled time and skips earlier days"
    if schedule.only_if != "every":
        yield "note: schedule.only_if: Vertex AI starts every scheduled run; unchanged nodes come from its cache"


_CONSOLE = "https://console.cloud.google.com/vertex-ai"


def _make_parent(section: VertexPipelinesConfig) -> str:
    return f"projects/{section.project}/locations/{section.region}"


def _make_client_options(section: VertexPipelinesConfig) -> ClientOptions:
    return ClientOptions(api_endpoint=section.endpoint or f"https://{section.region}-aiplatform.googleapis.com")


@contextlib.contextmanager
def _translate_errors(section: VertexPipelinesConfig) -> Iterator[None]:
    """Raise the client's errors as InputError or MachineError."""
    try:
        yield
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise InputError(
            "--submit: expected credentials for Google Cloud, found none",
            "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a file with them",
        ) from error
    except exceptions.ClientError as error:
        raise InputError(
            f"Vertex AI refuses the request with {error.code}: {error.message}",
            "check project, region, service_account and network, and your permissions in the project",
        ) from error
    except (exceptions.GoogleAPIError, google.auth.exceptions.GoogleAuthError, OSError) as error:
        raise MachineError(
            f"Vertex AI does not answer: {type(error).__name__}: {error}",
            f"check that this machine can reach {_make_client_options(section).api_endpoint}, then --submit again",
        ) from error
