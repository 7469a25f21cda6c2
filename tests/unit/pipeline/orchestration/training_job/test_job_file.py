"""The job file: the Trainer of a config on the data of a run, in the words of TFX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from published import publish
from tfx.types import artifact_utils

from components.errors import InputError
from components.trainer.plan import TrainingPlan
from components.tuner.config import TuneConfig
from pipeline.authoring.config import Config, load
from pipeline.orchestration.training_job import job_file

pytestmark = [
    pytest.mark.both_lines,
    # TFX of the current line calls what protobuf deprecates; raised inside protobuf's C code it is a SystemError.
    pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A pipeline with three runs; the last one came as far as its schema."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "rows.csv").write_text("fare,tips,company\n1.5,0,c0\n2.5,1,c1\n")
    (folder / "toy.yaml").write_text(
        f"data: {{path: {folder / 'rows.csv'}, label: tips > 0.2 * fare}}\n"
        "features: {columns: {fare: z_score, company: vocab}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        "training: {steps: 7, cluster: tfjob, strategy: {kind: parameter_server}}\n"
        f"runtime: {{output: {folder / 'out'}}}\n"
    )
    config = load(str(folder / "toy.yaml")).config
    publish(config, "first")
    publish(config, "second")
    publish(config, "third", nodes=("SchemaGen",))
    return config


def written(file: str) -> dict[str, Any]:
    record = json.loads(Path(file).read_text())
    return {**record, **{key: artifact_utils.parse_artifact_dict(record[key]) for key in ("inputs", "outputs")}}


def uris(artifacts: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {key: [artifact.uri for artifact in each] for key, each in artifacts.items()}


def test_newest_run_that_has_the_data_is_trained_on(config: Config, tmp_path: Path):
    file = job_file.path(str(tmp_path / "to"))
    inputs = job_file.write(config, file)
    result = written(file)
    assert uris(result["inputs"]) == {
        "examples": ["/shared/second/transformed_examples"],
        "transform_graph": ["/shared/second/transform_graph"],
        "schema": ["/shared/second/schema"],
        "statistics": ["/shared/second/statistics"],
    }
    assert inputs == sorted(uri for each in uris(result["inputs"]).values() for uri in each)
    [examples] = result["inputs"]["examples"]
    assert (examples.type_name, artifact_utils.decode_split_names(examples.split_names)) == (
        "Examples",
        ["train", "eval"],
    )


def test_named_run_is_trained_on(config: Config, tmp_path: Path):
    file = job_file.path(str(tmp_path))
    job_file.write(config, file, "first")
    assert uris(written(file)["inputs"])["schema"] == ["/shared/first/schema"]


def test_outputs_lie_beside_the_job_file(config: Config, tmp_path: Path):
    file = job_file.path(f"{tmp_path}/to/")
    job_file.write(config, file)
    assert file == f"{tmp_path}/to/job.json"
    result = written(file)["outputs"]
    assert uris(result) == {"model": [f"{tmp_path}/to/model"], "model_run": [f"{tmp_path}/to/model_run"]}
    assert [result["model"][0].type_name, result["model_run"][0].type_name] == ["Model", "ModelRun"]


def test_parameters_are_the_trainers_own(config: Config, tmp_path: Path):
    file = job_file.path(str(tmp_path))
    job_file.write(config, file)
    parameters = written(file)["exec_properties"]
    plan = TrainingPlan.model_validate_json(json.loads(parameters["custom_config"])["plan"])
    assert plan.training == config.training
    assert plan.features.features == config.features
    assert parameters["run_fn"] == "components.trainer.run_fn.run_fn"
    assert json.loads(parameters["train_args"]) == {"num_steps": 7}


def test_same_job_may_be_written_again_and_another_one_may_not(config: Config, tmp_path: Path):
    file = job_file.path(str(tmp_path))
    job_file.write(config, file)
    before = Path(file).read_text()
    job_file.write(config, file)
    with pytest.raises(InputError, match="with another job"):
        job_file.write(config, file, "first")
    assert Path(file).read_text() == before


def test_run_that_is_missing_or_has_no_data_is_reported(config: Config, tmp_path: Path):
    file = job_file.path(str(tmp_path / "to"))
    with pytest.raises(InputError, match="toy has no run 'frist'; did you mean 'first'"):
        job_file.write(config, file, "frist")
    with pytest.raises(InputError, match="run third has no outputs of SchemaGen, StatisticsGen, Transform") as raised:
        job_file.write(config, file, "third")
    assert "--to Transform" in raised.value.remedy
    assert not Path(file).exists()


def test_pipeline_that_has_never_run_is_reported(config: Config, tmp_path: Path):
    unrun = config.model_copy(update={"runtime": config.runtime.model_copy(update={"output": str(tmp_path / "out")})})
    with pytest.raises(InputError, match="toy has never run") as raised:
        job_file.write(unrun, job_file.path(str(tmp_path)), options=("--config", "of mine.yaml"))
    assert raised.value.remedy.endswith(": python runner.py --local --config 'of mine.yaml' --to Transform")


def test_uri_stays_one():
    assert job_file.path("gs://bucket/run 7/") == "gs://bucket/run 7/job.json"


def test_nodes_before_the_trainer_must_have_run(config: Config, tmp_path: Path):
    changed = config.model_copy(
        update={
            "tune": TuneConfig.model_validate({"dropout": {"linear": [0, 0.5]}}),
            "training": config.training.model_copy(update={"warm_start": True}),
        }
    )
    with pytest.raises(InputError, match="no run of toy has outputs of BaseModel, SchemaGen") as raised:
        job_file.write(changed, job_file.path(str(tmp_path / "to")))
    assert raised.value.remedy.endswith(" --to Tuner --to BaseModel")
