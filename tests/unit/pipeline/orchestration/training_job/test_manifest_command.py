"""`runner.py manifest` as it is typed: the manifest alone on stdout, the job file at the given path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from command import command, light_command
from published import publish

from components.trainer.remote import manifests
from pipeline.authoring.config import load

IMAGE = "registry.example/toy:1"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A config for a TFJob, whose pipeline has run up to Transform."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "rows.csv").write_text("fare,tips,company\n1.5,0,c0\n2.5,1,c1\n")
    path = folder / "toy.yaml"
    path.write_text(
        f"data: {{path: {folder / 'rows.csv'}, label: tips > 0.2 * fare}}\n"
        "features: {columns: {fare: z_score, company: vocab}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        "training: {cluster: tfjob, strategy: {kind: multi_worker}}\n"
        f"runtime: {{output: {folder / 'out'}}}\n"
    )
    publish(load(str(path)).config, "first")
    return str(path)


def plan_of(job: Path) -> dict[str, object]:
    record = json.loads(json.loads(job.read_text())["exec_properties"]["custom_config"])["plan"]
    training: dict[str, object] = json.loads(record)["training"]
    return training


@pytest.mark.parametrize(
    ("options", "kind", "cluster"),
    [
        ((), manifests.tfjob_manifest, "tfjob"),
        (("--kind", "jobset"), manifests.jobset_manifest, "given"),
        (("--kind", "vertex"), manifests.vertex_manifest, "vertex"),
    ],
    ids=["tfjob", "jobset", "vertex"],
)
def test_manifest_is_printed_and_the_job_file_written(
    options: tuple[str, ...], kind: Callable[..., object], cluster: str, config: str, tmp_path: Path
):
    ended = command("manifest", "--config", config, *options, "--image", IMAGE, "--to", f"{tmp_path}/to")
    assert ended.exit_code == 0, ended.err
    printed = json.loads(ended.out) if kind is manifests.vertex_manifest else yaml.safe_load(ended.out)
    job = tmp_path / "to" / "job.json"
    made = load(config).config
    assert printed == kind(manifests.Job(manifests.name_of(made.pipeline.name), made.training, IMAGE, str(job)))
    assert "&id" not in ended.out, "YAML's anchors are nothing for the eye"
    assert plan_of(job)["cluster"] == cluster
    assert "note: every task reads /shared/first/schema, /shared/first/statistics, /shared/first/transform" in ended.err


def test_first_command_is_shown_before_any_run(config: str, tmp_path: Path):
    options = ("--image", IMAGE, "--to", f"{tmp_path}/to", "--output", f"{tmp_path}/out")
    ended = command("manifest", "--config", config, *options)
    assert ended.exit_code == 2
    assert f"python runner.py --local --config {config} --to Transform" in ended.err


def test_without_a_kind_the_config_has_to_name_one(config: str):
    options = ("--image", IMAGE, "--to", "gs://bucket/toy", "--set", "training.cluster=local")
    ended = light_command("manifest", "--config", config, *options)
    assert ended.exit_code == 2
    assert "--kind: expected tfjob, jobset, vertex, received none, and training.cluster is local" in ended.err


def test_help_is_instant():
    ended = light_command("manifest", "--help")
    assert (ended.exit_code, ended.err) == (0, "")
    assert "--image" in ended.out
