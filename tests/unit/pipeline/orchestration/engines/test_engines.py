"""Tests for the conversion of engine sections to Beam options and descriptions, without running Beam."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from pipeline.orchestration.engines import direct

HOW_TO = Path(__file__).parents[5] / "docs" / "how-to"
PAGES = "".join((HOW_TO / name).read_text(encoding="utf-8") for name in ("engines.md", "flink.md", "dataflow.md"))
NONE = "--sdk_container_image=none"
IN_PROCESS = "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
JOBS = "pipeline.orchestration.engines.job_runner"
DATAFLOW = {
    "project": "rides",
    "region": "us-central1",
    "image": "us-docker.pkg.dev/rides/tfx/worker:1",
    "temp_location": "gs://rides/tmp/",
}
SERVER = {"job_endpoint": "jobs:8099"}
LEAST_SECTIONS = {
    "direct": {},
    "dataflow": {"dataflow": DATAFLOW},
    "flink": {"flink": SERVER},
    "spark": {"spark": SERVER},
    "portable": {"portable": SERVER | {"worker_pool": "pool:50000"}},
}
"""The smallest valid section of every engine, by engine."""


def make_runtime(engine: str, section: dict[str, Any] | None = None, **more: Any) -> RuntimeConfig:
    return RuntimeConfig.model_validate({"engine": engine, **({} if section is None else {engine: section}), **more})


def get_error(engine: str, section: dict[str, Any] | None = None) -> str:
    with pytest.raises(ValidationError) as raised:
        make_runtime(engine, section)
    return str(raised.value)


def test_direct_runs_in_memory_by_default() -> None:
    assert engines.beam_args(RuntimeConfig()) == [
        IN_PROCESS,
        "--direct_running_mode=in_memory",
        "--direct_num_workers=1",
        NONE,
    ]
    assert engines.describe(RuntimeConfig(), 0) == [
        "Beam: direct, on this machine, in memory, in each node's own process",
    ]


def test_direct_can_run_in_several_processes() -> None:
    settings = make_runtime("direct", {"mode": "multi_processing", "workers": 3})
    assert engines.beam_args(settings)[:3] == [
        f"--runner={direct.PROCESSES}",
        "--direct_running_mode=multi_processing",
        "--direct_num_workers=3",
    ]
    # The forked runner replaces Beam's multi-processing runner for columnar nodes.
    assert engines.worker_args(settings, 0) == [
        f"--runner={engines.FORKED}",
        "--direct_running_mode=in_memory",
        "--direct_num_workers=3",
    ]
    assert engines.describe(settings, 0) == [
        "Beam: direct, on this machine, 3 worker processes for each node, as runtime.direct.mode says",
        "Beam: ExampleGen, StatisticsGen, Transform and Evaluator in 3 forked workers",
    ]


def test_large_input_gets_more_workers_and_the_choice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct.os, "sched_getaffinity", lambda _: set(range(4)))
    large = 200 << 20
    forked = [f"--runner={engines.FORKED}", "--direct_running_mode=in_memory"]
    assert engines.worker_args(RuntimeConfig(), 100 << 20) == []
    assert engines.worker_args(RuntimeConfig(), large) == [*forked, "--direct_num_workers=3"]
    assert engines.worker_args(RuntimeConfig(), 1 << 40) == [*forked, "--direct_num_workers=4"]
    assert engines.describe(RuntimeConfig(), 100 << 20)[1:] == []
    assert engines.describe(RuntimeConfig(), large)[1:] == [
        "Beam: ExampleGen, StatisticsGen, Transform and Evaluator in 3 forked workers, for 200 MiB of input",
    ]
    assert engines.describe(RuntimeConfig(vectorised=False), large)[1:] == [
        "Beam: ExampleGen in 3 forked workers, for 200 MiB of input"
    ]
    assert engines.worker_args(make_runtime("direct", {"workers": 2}), large) == [*forked, "--direct_num_workers=2"]
    assert engines.worker_args(make_runtime("direct", {"mode": "in_memory"}), large) == []
    assert engines.worker_args(make_runtime("flink", SERVER), large) == []
    for option in ("--direct_num_workers=1", "--direct_running_mode=multi_threading", "--runner=DataflowRunner"):
        assert engines.worker_args(RuntimeConfig(beam_args=(option,)), 1 << 40) == []


def test_dataflow_options_with_cost_or_public_access_are_set_explicitly() -> None:
    assert engines.beam_args(make_runtime("dataflow", DATAFLOW)) == [
        "--runner=DataflowRunner",
        "--project=rides",
        "--region=us-central1",
        "--temp_location=gs://rides/tmp/",
        "--staging_location=gs://rides/tmp/staging",
        "--sdk_container_image=us-docker.pkg.dev/rides/tfx/worker:1",
        "--sdk_location=container",
        "--worker_machine_type=n2-standard-4",
        "--disk_size_gb=50",
        "--max_num_workers=10",
        "--autoscaling_algorithm=THROUGHPUT_BASED",  # pragma: allowlist secret
        "--no_use_public_ips",
        "--experiments=use_runner_v2",
        "--experiments=shuffle_mode=service",
    ]


def test_dataflow_fields_become_options() -> None:
    section = DATAFLOW | {
        "staging_location": "gs://rides/staging",
        "machine_type": "n1-highmem-8",
        "disk_gb": 100,
        "workers": 5,
        "max_workers": 5,
        "autoscaling": False,
        "public_ips": True,
        "network": "vpc",
        "subnetwork": "regions/us-central1/subnetworks/workers",
        "service_account": "worker@rides.iam.gserviceaccount.com",
        "labels": {"team": "ml", "cost": "7"},
        "shuffle": "workers",
        "service_options": ["enable_prime"],
    }
    options = engines.beam_args(make_runtime("dataflow", section))
    assert {
        "--staging_location=gs://rides/staging",
        "--worker_machine_type=n1-highmem-8",
        "--disk_size_gb=100",
        "--num_workers=5",
        "--autoscaling_algorithm=NONE",
        "--use_public_ips",
        "--network=vpc",
        "--subnetwork=regions/us-central1/subnetworks/workers",
        "--service_account_email=worker@rides.iam.gserviceaccount.com",
        "--labels=team=ml",
        "--labels=cost=7",
        "--experiments=shuffle_mode=appliance",
        "--dataflow_service_options=enable_prime",
    } <= set(options)
    assert "--no_use_public_ips" not in options
    assert engines.describe(make_runtime("dataflow", section), 0) == [
        "Beam: dataflow, project rides in us-central1, 5 n1-highmem-8 with us-docker.pkg.dev/rides/tfx/worker:1, "
        "public addresses"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"region": "Iowa"}, "region"),
        ({"temp_location": "/tmp/here"}, "temp_location"),  # noqa: S108 - refused
        ({"staging_location": "s3://rides"}, "staging_location"),
        ({"image": ""}, "image"),
        ({"autoscaling": False}, "expected workers, received none"),
        ({"workers": 11}, "expected at most max_workers=10 workers, received 11"),
        ({"subnetwork": "workers"}, "subnetwork"),
        ({"service_account": "me"}, "service_account"),
        ({"labels": {"Team": "ml"}}, "a letter first, received Team=ml"),
        ({"labels": {"team": "M L"}}, "received team=M L"),
        ({"disk_gb": 5}, "disk_gb"),
        ({"max_workers": 100_000}, "max_workers"),
    ],
)
def test_invalid_dataflow_section_is_rejected(change: dict[str, Any], message: str) -> None:
    assert message in get_error("dataflow", DATAFLOW | change)


def test_option_that_only_writes_a_template_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"received --template_location=gs://b/t, .* use --dataflow_job_file"):
        RuntimeConfig(engine="direct", beam_args=("--template_location=gs://b/t",))
    assert RuntimeConfig(beam_args=("--dataflow_job_file=gs://b/t",)).beam_args == ("--dataflow_job_file=gs://b/t",)


@pytest.mark.parametrize(("engine", "runner"), [("flink", "FlinkJobs"), ("spark", "SparkJobs")])
def test_flink_and_spark_use_a_running_job_server(engine: str, runner: str) -> None:
    settings = make_runtime(engine, SERVER | {"worker_pool": "localhost:50001", "workers_per_machine": 2})
    assert engines.beam_args(settings) == [
        f"--runner={JOBS}.{runner}",
        "--job_endpoint=jobs:8099",
        "--environment_type=EXTERNAL",
        "--environment_config=localhost:50001",
        "--sdk_worker_parallelism=2",
        "--environment_cache_millis=30000",
        "--job_restarts=2",
        NONE,
    ]
    assert engines.addresses(settings) == ("jobs:8099",)
    assert engines.jar(settings) is None
    assert engines.describe(settings, 0)[0].startswith(
        f"Beam: {engine}, job server jobs:8099, Python in the worker pool"
    )


@pytest.mark.parametrize(
    ("engine", "master", "option"),
    [("flink", "flink:8081", "flink_master"), ("spark", "spark://spark:7077", "spark_master_url")],
)
def test_flink_and_spark_can_start_a_job_server_from_a_jar(engine: str, master: str, option: str) -> None:
    settings = make_runtime(engine, {"job_server_jar": "jars/server.jar", "master": master})
    options = engines.beam_args(settings)
    assert f"--{engine}_job_server_jar=jars/server.jar" in options
    assert f"--{option}={master}" in options
    assert engines.addresses(settings) == ((master,) if engine == "flink" else ())
    assert engines.jar(settings) == "jars/server.jar"


def test_flink_parallelism_becomes_an_option() -> None:
    assert "--parallelism=8" in engines.beam_args(make_runtime("flink", SERVER | {"parallelism": 8}))


@pytest.mark.parametrize(
    ("section", "address"),
    [
        (SERVER | {"rest": "flink:8081"}, "flink:8081"),
        ({"job_server_jar": "server.jar", "master": "flink:8082"}, "flink:8082"),
        ({"job_server_jar": "server.jar", "master": "[local]"}, None),
        (SERVER, None),
    ],
)
def test_flink_jobs_are_followed_if_the_rest_api_is_known(section: dict[str, Any], address: str | None) -> None:
    settings = make_runtime("flink", section)
    rest_options = [option for option in engines.beam_args(settings) if option.startswith("--flink_rest")]
    assert rest_options == ([f"--flink_rest={address}"] if address else [])
    assert (address in engines.addresses(settings)) == (address is not None)


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_either_a_job_endpoint_or_a_jar_is_required(engine: str) -> None:
    assert "expected either job_endpoint or job_server_jar, received none" in get_error(engine, {})
    assert "received both" in get_error(engine, SERVER | {"job_server_jar": "server.jar"})
    assert "nothing is downloaded" in get_error(engine, {"job_server_jar": "https://example.org/server.jar"})


def test_spark_master_must_be_a_spark_url() -> None:
    assert "master" in get_error("spark", {"job_server_jar": "server.jar", "master": "spark:7077"})


@pytest.mark.parametrize(
    ("section", "options", "addresses"),
    [
        (
            {"job_endpoint": "localhost:8099"},
            [f"--runner={JOBS}.PortableJobs", "--job_endpoint=localhost:8099", "--environment_type=LOOPBACK"],
            ("localhost:8099",),
        ),
        (
            {"job_endpoint": "localhost:8099", "worker_pool": "localhost:50000"},
            [
                f"--runner={JOBS}.PortableJobs",
                "--job_endpoint=localhost:8099",
                "--environment_type=EXTERNAL",
                "--environment_config=localhost:50000",
            ],
            ("localhost:8099", "localhost:50000"),
        ),
        (
            {"job_endpoint": "jobs:8099", "worker_pool": "localhost:50000"},
            [
                f"--runner={JOBS}.PortableJobs",
                "--job_endpoint=jobs:8099",
                "--environment_type=EXTERNAL",
                "--environment_config=localhost:50000",
            ],
            ("jobs:8099",),
        ),
    ],
)
def test_portable_engine_uses_loopback_workers_or_a_worker_pool(
    section: dict[str, Any], options: list[str], addresses: tuple[str, ...]
) -> None:
    settings = make_runtime("portable", section)
    assert engines.beam_args(settings) == [*options, "--job_restarts=2", NONE]
    assert engines.addresses(settings) == addresses
    line = engines.describe(settings, 0)[0]
    assert all(address in line for address in addresses)
    assert ("LOOPBACK" in line) == ("--environment_type=LOOPBACK" in options)


def test_portable_engine_requires_workers() -> None:
    assert "expected a worker pool for jobs:8099" in get_error("portable", SERVER)
    assert "expected host:port" in get_error("portable", {"job_endpoint": "jobs"})


@pytest.mark.parametrize(
    ("engine", "section", "expected"),
    [
        ("direct", {}, True),
        ("dataflow", DATAFLOW, False),
        ("flink", SERVER, False),
        ("flink", {"job_endpoint": "localhost:8099"}, True),
        ("flink", SERVER | {"shared_folders": True}, True),
        ("flink", {"job_server_jar": "server.jar"}, True),
        ("flink", {"job_server_jar": "server.jar", "master": "http://flink:8081"}, False),
        ("flink", {"job_server_jar": "server.jar", "master": "localhost:8081"}, True),
        ("spark", {"job_server_jar": "server.jar"}, True),
        ("spark", {"job_server_jar": "server.jar", "master": "spark://spark:7077"}, False),
        ("spark", {"job_server_jar": "server.jar", "master": "spark://127.0.0.1:7077"}, True),
        ("portable", {"job_endpoint": "127.0.0.1:8099"}, True),
        ("portable", {"job_endpoint": "localhost:8099", "worker_pool": "pool:50000"}, False),
        (
            "portable",
            {"job_endpoint": "localhost:8099", "worker_pool": "pool:50000", "shared_folders": True},
            True,
        ),
    ],
)
def test_engines_know_whether_their_workers_read_local_files(
    engine: str, section: dict[str, Any], expected: bool
) -> None:
    assert engines.reads_this_disk(make_runtime(engine, section)) == expected


@pytest.mark.parametrize("engine", list(LEAST_SECTIONS))
def test_user_options_come_last_and_overridden_options_are_reported(engine: str) -> None:
    args = ["--runner=MyRunner", "--experiments=more", "--labels=a=b", "--save_main_session"]
    settings = make_runtime(engine, **LEAST_SECTIONS[engine], beam_args=args)
    assert engines.beam_args(settings)[-4:] == args
    lines = engines.describe(settings, 1 << 40)
    replaced_runner = next(option for option in engines.beam_args(settings) if option.startswith("--runner"))
    assert lines[1:] == [f"Beam: --runner=MyRunner of runtime.beam_args instead of {replaced_runner}"]


@pytest.mark.parametrize("engine", [name for name in LEAST_SECTIONS if name != "direct"])
def test_engine_without_its_section_is_rejected(engine: str) -> None:
    assert f"engine: {engine} needs a section {engine} with " in get_error(engine)


def test_command_line_chooses_between_engines_of_a_config(tmp_path: Path) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(
        "data: {path: rows.csv, label: tips}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        "runtime:\n"
        "  flink: {job_endpoint: 'jobs:8099'}\n"
        "  portable: {job_endpoint: 'localhost:8099'}\n"
    )
    runners = {
        name: engines.beam_args(load(str(config), [f"runtime.engine={name}"]).config.runtime)[0]
        for name in ("direct", "flink", "portable")
    }
    assert len(set(runners.values())) == 3
    assert runners["flink"] == f"--runner={JOBS}.FlinkJobs"
    with pytest.raises(InputError, match=r"small.yaml:4: runtime: engine: spark needs a section spark"):
        load(str(config), ["runtime.engine=spark"])
    with pytest.raises(InputError, match=r"dask is refused: Beam's Dask runner loses"):
        load(str(config), ["runtime.engine=dask"])
    with pytest.raises(InputError, match=r"expected one of direct, dataflow, flink, spark, portable, received 'flonk'"):
        load(str(config), ["runtime.engine=flonk"])


def test_documented_sections_are_valid() -> None:
    sections = [yaml.safe_load(text)["runtime"] for text in re.findall(r"```yaml\n(runtime:.*?)```", PAGES, re.DOTALL)]
    assert {section["engine"] for section in sections} >= set(LEAST_SECTIONS)
    for section in sections:
        RuntimeConfig.model_validate(section)
