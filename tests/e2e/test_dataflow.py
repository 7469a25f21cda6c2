"""A run on Dataflow, whose jobs run on Prism as they are submitted, with workers that have only the image's content.

Dataflow's API and Cloud Storage are fakes at their HTTP boundaries. Beam's client, the staged files, the worker's start
by Beam's program `boot`, the pickles and the runner are real.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from tests.support.data import people
from tests.support.fakes import fake_dataflow, fake_gcs
from tests.support.fakes.discovery_document import find_violations
from tests.support.runs.command import ROOT, Ended, command
from tests.support.runs.engine_runs import Ran, assert_equal
from tests.support.servers.dataflow_workers import DataflowWorkers, read_options
from tests.support.servers.job_servers import needs_prism, prism
from tests.support.servers.worker_container import Container, needs_containers, pool

DOCUMENTS = sorted(ROOT.glob(".cache/dataflow/lib/*/site-packages/googleapiclient/discovery_cache/documents"))
needs_documents = pytest.mark.skipif(not DOCUMENTS, reason="no discovery documents: `make engines` installs them")
pytestmark = [pytest.mark.e2e, pytest.mark.engine, needs_prism, needs_containers, needs_documents]

IMAGE = "us-docker.pkg.dev/rides/tfx/worker:1"
JOBS = {
    "ExampleGen": {"FirstPass", "SecondPass", "WriteManifest"},
    "StatisticsGen": {"Write"},
    "Transform": {"OfAnalyzedSplits", "Analyze", "Apply"},
    "Evaluator": {"Divide", "Count", "Combine0"},
}
"""Node with a Beam job, in the order of a run → some of the steps of its job."""
SECONDS = 300


@dataclass(frozen=True)
class Cloud:
    """The services that a run on Dataflow uses.

    Attributes:
      bucket: All files.
      endpoint: Dataflow's API.
      jobs: The jobs that were submitted, as (path, job).
      workers: Run the jobs.
      container: A container of the image.
      environment: Environment variables with which processes find the bucket.
    """

    bucket: fake_gcs.Bucket
    endpoint: str
    jobs: list[tuple[str, dict[str, Any]]]
    workers: DataflowWorkers
    container: Container
    environment: dict[str, str]

    def run(self, folder: Path, *arguments: str, beam_args: tuple[str, ...] = ()) -> Ended:
        """Run the pipeline of people with data and artifacts in the bucket."""
        dataflow = {
            "project": "rides",
            "region": "us-central1",
            "image": IMAGE,
            "temp_location": "gs://rides/tmp",
            "subnetwork": "regions/us-central1/subnetworks/workers",
            "service_account": "worker@rides.iam.gserviceaccount.com",
            "labels": {"team": "ml"},
            "service_options": ["enable_prime"],
        }
        options = (f"--dataflow_endpoint={self.endpoint}", "--no_auth", *beam_args)
        runtime = {"artifacts": f"gs://rides/{folder.name}", "dataflow": dataflow, "beam_args": list(options)}
        data = {**people.CONFIG["data"], "path": "gs://rides/data/people.csv"}
        folder.mkdir()
        config = people.write_config(folder / "people.yaml", folder, data=data, runtime=runtime)
        every = ("--local", "--json", "--config", str(config), "--output", str(folder / "out"))
        return command(*every, "--engine", "dataflow", *arguments, environment=self.environment)

    def download(self, prefix: str, folder: Path) -> Path:
        """Write the objects with a prefix to a folder."""
        for name, content in self.bucket.files().items():
            if name.startswith(f"{prefix}/"):
                path = folder / name.removeprefix(f"{prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return folder


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder, bucket = tmp_path_factory.mktemp("cloud"), fake_gcs.Bucket()
    bucket.objects["data/people.csv"] = people.write(folder / "people.csv", people.rows()).read_bytes()
    (folder / "storage").mkdir()
    (folder / "staged").mkdir()
    jobs: list[tuple[str, dict[str, Any]]] = []
    with contextlib.ExitStack() as servers:
        environment = dict(servers.enter_context(fake_gcs.serve(bucket, folder / "storage")))
        # Beam's client of Dataflow reads only the other spelling, and would not call Dataflow's fake directly.
        environment["HTTPS_PROXY"] = environment.pop("https_proxy")
        container = Container(folder / "root", environment)
        workers = DataflowWorkers(
            bucket,
            servers.enter_context(prism(folder / "prism")),
            servers.enter_context(pool(container, folder / "pool.log")),
            folder / "staged",
        )
        endpoint = servers.enter_context(fake_dataflow.serve(jobs, workers.run))
        yield Cloud(bucket, endpoint, jobs, workers, container, environment)


@pytest.fixture(scope="module")
def ended(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return a run up to the Evaluator."""
    ended = cloud.run(tmp_path_factory.mktemp("dataflow") / "runs", "--to", "Evaluator")
    assert ended.exit_code == 0, ended.out + ended.err
    return ended


@pytest.fixture(scope="module")
def jobs(ended: Ended, cloud: Cloud) -> dict[str, dict[str, Any]]:
    """Return node → its job."""
    return {node: job for node, (_, job) in zip(JOBS, cloud.jobs, strict=False)}


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return the same run on this machine."""
    folder = tmp_path_factory.mktemp("direct")
    config = people.project(folder)
    every = ("--local", "--json", "--config", str(config), "--output", str(folder / "out"))
    ended = command(*every, "--to", "Evaluator")
    assert ended.exit_code == 0, ended.out + ended.err
    return Ran(ended, folder / "out" / "people" / "artifacts")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DOCUMENTS[0] / "dataflow.v1b3.json").read_text())
    return content


def test_outputs_are_those_of_direct(cloud: Cloud, ended: Ended, direct: Ran, tmp_path: Path) -> None:
    downloaded = cloud.download("runs", tmp_path)
    assert_equal(Ran(ended, downloaded), direct)
    expected = direct.ended.result
    assert ended.nodes("done") == direct.ended.nodes("done")
    assert (ended.result["verdict"], ended.result["rows"]) == (expected["verdict"], expected["rows"])
    metrics, expected_metrics = read_metrics(downloaded), read_metrics(direct.artifacts)
    assert metrics.keys() == expected_metrics.keys()
    for slice_name, values in metrics.items():
        assert values == pytest.approx(expected_metrics[slice_name], abs=1e-3, nan_ok=True), slice_name


def read_metrics(artifacts: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of each slice."""
    [verdict] = artifacts.glob("Evaluator/evaluation/*/verdict.json")
    entries = json.loads(verdict.read_text())["slices"]
    return {str(entry["slice"]): entry["metrics"] for entry in entries}


def test_each_beam_node_has_submitted_its_own_job(cloud: Cloud, jobs: dict[str, dict[str, Any]]) -> None:
    assert len(jobs) == len(JOBS)
    for node, job in jobs.items():
        pipeline = cloud.workers.read(job)
        labels = {label for step in pipeline.components.transforms.values() for label in step.unique_name.split("/")}
        assert JOBS[node] <= labels, node
        [environment] = pipeline.components.environments.values()
        assert environment.urn == common_urns.environments.DOCKER.urn
        assert beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image == IMAGE
        # The code is in the image: neither a wheel nor a source package is staged.
        [worker_pool] = job["environment"]["workerPools"]
        assert {package["name"] for package in worker_pool["packages"]} <= {"submission_environment_dependencies.txt"}


def test_jobs_are_messages_of_the_api(jobs: dict[str, dict[str, Any]], document: dict[str, Any]) -> None:
    for node, job in jobs.items():
        assert find_violations(job, "Job", document) == [], node
    wrong = json.loads(json.dumps(jobs["Transform"]))
    wrong["environment"]["workerPools"][0]["diskSizeGb"] = "much"
    wrong["environment"]["image"] = IMAGE
    assert len(find_violations(wrong, "Job", document)) == 2


def test_template_of_a_node_runs_again(cloud: Cloud, document: dict[str, Any], tmp_path: Path) -> None:
    """The template that a run has written, and the job that the flex template makes of it, give the node's shards."""
    before, template = len(cloud.jobs), "gs://rides/templates/ExampleGen.json"
    ended = cloud.run(tmp_path / "again", "--to", "ExampleGen", beam_args=(f"--dataflow_job_file={template}",))
    assert ended.exit_code == 0, ended.out + ended.err
    [(_, submitted)] = cloud.jobs[before:]
    classic = json.loads(cloud.workers.read_object(template))
    assert classic == submitted
    flex_job = launch(cloud, template, document)
    assert without_files(cloud.workers.read(flex_job)) == without_files(cloud.workers.read(classic))
    assert flex_job["environment"]["experiments"] == classic["environment"]["experiments"]
    [pool_of_machines] = flex_job["environment"]["workerPools"]
    assert pool_of_machines["machineType"] == "n2-highmem-8"
    for job in (classic, flex_job):
        written = len(cloud.bucket.log)
        cloud.workers.run(job)
        names = {line.removeprefix("write ") for line in cloud.bucket.log[written:]}
        assert any(name.endswith(".parts/manifest.json") for name in names), names


def without_files(pipeline: Any) -> Any:
    """Return a pipeline without the addresses of its staged files, which each job stages again."""
    for environment in pipeline.components.environments.values():
        del environment.dependencies[:]
    return pipeline


def launch(cloud: Cloud, template: str, document: dict[str, Any]) -> dict[str, Any]:
    """Run the program of the flex template as Dataflow's launcher does; return the job that it has written."""
    spec = json.loads((ROOT / "deploy" / "dataflow" / "flex_template.json").read_text())
    assert find_violations(spec, "ContainerSpec", document) == []
    names = {parameter["name"] for parameter in spec["metadata"]["parameters"]}
    assert names == {"job"}
    target = "gs://rides/launched/job.json"
    # What the launcher adds to the parameters of the launch.
    options = (
        *("--project=rides", "--region=us-central1", "--job_name=again", f"--template_location={target}"),
        *("--staging_location=gs://rides/launched/staging", "--temp_location=gs://rides/launched/tmp"),
        *("--worker_machine_type=n2-highmem-8", "--runner=DataflowRunner"),
    )
    program = (ROOT / "deploy" / "dataflow" / "flex_template.py").read_text()
    line = cloud.container.command("python", "-", f"--job={template}", "--no_auth", *options)
    launched = subprocess.run(line, input=program, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert launched.returncode == 0, launched.stderr
    job: dict[str, Any] = json.loads(cloud.workers.read_object(target))
    assert find_violations(job, "Job", document) == []
    return job


def test_worker_whose_image_lacks_the_project_fails_with_the_reason(
    cloud: Cloud, jobs: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    container = Container(tmp_path / "root", cloud.environment)
    shutil.rmtree(tmp_path / "root" / "app" / "components")
    with pool(container, tmp_path / "pool.log") as address:
        workers = DataflowWorkers(cloud.bucket, cloud.workers.job_service, address, tmp_path)
        with pytest.raises(RuntimeError, match="No module named 'components'"):
            workers.run(jobs["ExampleGen"])


def test_options_of_the_run_reach_the_workers(jobs: dict[str, dict[str, Any]]) -> None:
    options = read_options(jobs["Evaluator"])
    assert (options["project"], options["sdk_container_image"]) == ("rides", IMAGE)
    assert {"use_runner_v2", "shuffle_mode=service"} <= set(options["experiments"])
