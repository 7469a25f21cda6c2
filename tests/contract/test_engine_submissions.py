"""Jobs as they are submitted to Dataflow, Flink and Spark: fake services record them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from google.protobuf import json_format

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from tests.support.data import people
from tests.support.fakes import fake_dataflow
from tests.support.runs import ingest_runs
from tests.support.runs.command import ROOT, Ended, command, program

pytestmark = pytest.mark.both_lines

RECORDER = ROOT / "tests" / "support" / "fakes" / "recording_job_service.py"
IMAGE = "us-docker.pkg.dev/rides/tfx/worker:1"
# Beam 2.77 sends the numbers of the API's enums instead of their names.
BATCH = ("JOB_TYPE_BATCH", 1)
PRIVATE = ("WORKER_IP_PRIVATE", 2)
AUTOSCALED = ("AUTOSCALING_ALGORITHM_BASIC", 2)
EXTERNAL = common_urns.environments.EXTERNAL.urn


@pytest.mark.slow
def test_job_for_dataflow(tmp_path: Path) -> None:
    examples = ingest_runs.ingest(
        ingest_runs.data(people.write(tmp_path / "people.csv", people.rows(), delimiter=","), label="income"),
        tmp_path / "examples",
    )
    staging = tmp_path / "staging"
    staging.mkdir()
    section = {
        "project": "rides",
        "region": "us-central1",
        "image": IMAGE,
        "temp_location": "gs://rides/tmp",
        "max_workers": 7,
        "subnetwork": "regions/us-central1/subnetworks/workers",
        "service_account": "worker@rides.iam.gserviceaccount.com",
        "labels": {"team": "ml"},
        "service_options": ["enable_prime"],
    }
    jobs: list[tuple[str, dict[str, Any]]] = []
    with fake_dataflow.serve(jobs) as endpoint:
        # The last case replaces a bucket, which is not available here.
        args = (f"--dataflow_endpoint={endpoint}", "--no_auth", f"--staging_location={staging}")
        runtime = RuntimeConfig.model_validate({"engine": "dataflow", "dataflow": section, "beam_args": args})
        request = {
            "examples": examples.uri,
            "splits": ingest_runs.splits(examples),
            "statistics": str(tmp_path / "statistics"),
            "beam_args": engines.beam_args(runtime),
        }
        side = str(ROOT / "tests" / "support" / "programs" / "dataflow_program.py")
        assert program(side, request=request, environment={"STORAGE_EMULATOR_HOST": endpoint}) == {"done": True}
    [(path, job)] = jobs
    assert path.startswith("/v1b3/projects/rides/locations/us-central1/jobs")
    assert job["type"] in BATCH
    assert job["labels"]["team"] == "ml"
    assert job["labels"]["tfx_executor"].startswith("tfx-components-statistics")
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == "worker@rides.iam.gserviceaccount.com"
    assert environment["tempStoragePrefix"] == "storage.googleapis.com/rides/tmp"
    assert {"use_runner_v2", "shuffle_mode=service"} <= set(environment["experiments"])
    assert environment["serviceOptions"] == ["enable_prime"]
    [pool] = environment["workerPools"]
    assert {
        "machineType": "n2-standard-4",
        "diskSizeGb": 50,
        "subnetwork": "regions/us-central1/subnetworks/workers",
        "workerHarnessContainerImage": IMAGE,
    }.items() <= pool.items()
    assert pool["ipConfiguration"] in PRIVATE
    assert pool["autoscalingSettings"]["algorithm"] in AUTOSCALED
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 7
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    # TFX does not add a wheel or a source package: the image contains the code.
    assert {package["name"] for package in pool["packages"]} <= {"submission_environment_dependencies.txt"}
    pipeline = beam_runner_api_pb2.Pipeline.FromString((staging / "pipeline.pb").read_bytes())
    assert_computes_statistics(pipeline)
    assert environment["sdkPipelineOptions"]["options"]["pipelineUrl"] == str(staging / "pipeline.pb")


def assert_computes_statistics(pipeline: Any) -> None:
    """Check that both splits are read, counted and written."""
    steps = {step.unique_name for step in pipeline.components.transforms.values()}
    for split in ("train", "eval"):
        assert any(split in step and "GenerateStatistics" in step for step in steps), split
        assert any(split in step and "Write" in step for step in steps), split
    urns = [step.spec.urn for step in pipeline.components.transforms.values()]
    assert common_urns.primitives.GROUP_BY_KEY.urn in urns
    [environment] = pipeline.components.environments.values()
    assert environment.urn == common_urns.environments.DOCKER.urn
    assert beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image == IMAGE


@contextmanager
def recorder(record: Path) -> Iterator[str]:
    """Start a job service that only records jobs; yield its address."""
    record.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(RECORDER), str(record)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def submit(tmp_path: Path, engine: str, section: dict[str, Any], **environment: str) -> Ended:
    """Run ExampleGen on an engine that reports success without doing anything."""
    data = people.write(tmp_path / "people.csv", people.rows())
    config = people.write_config(tmp_path / "people.yaml", data, runtime={engine: section})
    return command(
        *("--local", "--json", "--config", str(config), "--output", str(tmp_path / "out")),
        *("--to", "ExampleGen", "--engine", engine),
        environment=environment,
    )


def assert_told_that_nothing_came(ended: Ended) -> None:
    error = ended.result["error"]
    assert (ended.exit_code, ended.states["ExampleGen"]) == (1, "failed")
    assert error["headline"].startswith("expected Beam's workers to write to ")
    assert "mount the folder in the workers" in error["remedy"]


def read_submission(record: Path) -> tuple[Any, dict[str, Any]]:
    """Return the pipeline of the only submitted job, and its options by name."""
    [file] = record.glob("*.prepare")
    request = beam_job_api_pb2.PrepareJobRequest.FromString(file.read_bytes())
    options = json_format.MessageToDict(request.pipeline_options)
    return request.pipeline, {name.split(":")[2]: value for name, value in options.items()}


def assert_ingests_in(pool: str, pipeline: Any) -> None:
    """Check that the steps belong to ExampleGen, and run in a worker pool that does not fetch artifacts."""
    steps = {step.unique_name for step in pipeline.components.transforms.values()}
    assert {"FirstPass", "SecondPass", "WriteManifest"} <= {step.partition("/")[0] for step in steps}
    [environment] = pipeline.components.environments.values()
    assert environment.urn == EXTERNAL
    assert beam_runner_api_pb2.ExternalPayload.FromString(environment.payload).endpoint.url == pool
    staged = [
        beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(requirement.role_payload).staged_name
        for requirement in environment.dependencies
    ]
    assert set(staged) <= {"submission_environment_dependencies.txt"}


@pytest.mark.parametrize(
    ("engine", "more", "expected"),
    [
        pytest.param("flink", {"parallelism": 3}, {"parallelism": "3"}, marks=pytest.mark.extended),
        pytest.param("spark", {}, {}, marks=pytest.mark.slow),
    ],
)
def test_job_for_a_job_server_that_runs(
    tmp_path: Path, engine: str, more: dict[str, Any], expected: dict[str, str]
) -> None:
    record = tmp_path / "record"
    with recorder(record) as address:
        section = {"job_endpoint": address, "worker_pool": "localhost:50001", "workers_per_machine": 2}
        ended = submit(tmp_path, engine, section | more)
    assert_told_that_nothing_came(ended)
    assert ended.result["beam"][0].startswith(f"Beam: {engine}, job server {address}, Python in the worker pool")
    pipeline, options = read_submission(record)
    assert_ingests_in("localhost:50001", pipeline)
    external = {
        "job_endpoint": address,
        "environment_type": "EXTERNAL",
        "environment_config": "localhost:50001",
        "sdk_worker_parallelism": "2",
    }
    assert {**external, **expected}.items() <= options.items()
    # The recording job service does not contain a class of this name.
    assert "runner" not in options


@pytest.mark.parametrize(
    ("engine", "master", "option"),
    [
        pytest.param("flink", "[local]", ("--flink-master", "[local]"), marks=pytest.mark.slow),
        ("spark", "spark://localhost:7077", ("--spark-master-url", "spark://localhost:7077")),
    ],
)
@pytest.mark.extended
def test_job_for_a_job_server_that_the_node_starts_from_a_jar(
    tmp_path: Path, engine: str, master: str, option: tuple[str, str]
) -> None:
    record, jar = tmp_path / "record", tmp_path / "job-server.jar"
    record.mkdir()
    jar.touch()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{RECORDER}" "{record}" "$@"\n')
    java.chmod(0o755)
    path = os.pathsep.join([str(java.parent), os.environ["PATH"]])
    ended = submit(tmp_path, engine, {"job_server_jar": str(jar), "master": master}, PATH=path)
    assert_told_that_nothing_came(ended)
    arguments = json.loads((record / "command.json").read_text())
    # Options of Java may precede these.
    assert {("-jar", str(jar)), option} <= set(itertools.pairwise(arguments))
    pipeline, options = read_submission(record)
    assert_ingests_in("localhost:50000", pipeline)
    assert options[option[0].removeprefix("--").replace("-", "_")] == option[1]
