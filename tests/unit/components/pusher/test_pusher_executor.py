"""Tests of the Pusher node: it pushes blessed models with a manifest, stages them, and sets the properties of TFX."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import Channel
from tfx.types.standard_artifacts import Examples, InfraBlessing, Model, ModelBlessing, ModelEvaluation, PushedModel

from components.base.errors import InputError
from components.data.edge_models import EdgeModels
from components.pusher import serving_state
from components.pusher.candidate import from_properties
from components.pusher.component import Pusher
from components.pusher.config import PushConfig, RolloutConfig
from components.pusher.executor import Executor
from components.pusher.plan import PushPlan
from components.pusher.serving_state import Canary, Stages
from components.results import version_manifest


@pytest.fixture
def model(tmp_path: Path) -> Model:
    artifact = Model()
    artifact.uri = str(tmp_path / "model")
    (tmp_path / "model" / "Format-Serving" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "Format-Serving" / "saved_model.pb").write_text("graph")
    (tmp_path / "model" / "Format-Serving" / "variables" / "variables.index").write_text("values")
    return artifact


@pytest.fixture
def tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock, so that every push happens in the same second."""
    monkeypatch.setattr("time.time", lambda: 1700000000.5)


def push(
    model: Model,
    blessed: bool | None,
    directory: str,
    out: Path,
    config: PushConfig | None = None,
    context: Any = None,
    **inputs: Any,
) -> PushedModel:
    channels = {key: Channel(type=type(artifact)) for key, artifact in inputs.items()}
    node = Pusher(
        PushPlan(push=config or PushConfig(), model_name="taxi"),
        directory,
        model=Channel(type=Model),
        model_blessing=None if blessed is None else Channel(type=ModelBlessing),
        **channels,
    )
    assert node.id == "Pusher"
    pushed = PushedModel()
    pushed.uri = str(out)
    input_artifacts = {"model": [model], **{key: [artifact] for key, artifact in inputs.items()}}
    if blessed is not None:
        blessing = ModelBlessing()
        blessing.set_int_custom_property("blessed", int(blessed))
        input_artifacts["model_blessing"] = [blessing]
    Executor(context).Do(input_artifacts, {"pushed_model": [pushed]}, node.exec_properties)
    return pushed


def number(pushed: PushedModel) -> int:
    return int(pushed.get_string_custom_property("pushed_version"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_blessed_model_is_pushed_and_kept_as_an_artifact(model: Model, tmp_path: Path, scheme: str) -> None:
    pushed = push(model, True, f"{scheme}{tmp_path}/pushed", tmp_path / "out")
    folder = tmp_path / "pushed" / f"{number(pushed)}"
    assert pushed.get_int_custom_property("pushed") == 1
    assert pushed.get_string_custom_property("pushed_destination") == f"{scheme}{folder}"
    for copy in (folder, tmp_path / "out"):
        assert (copy / "saved_model.pb").read_text() == "graph"
        assert (copy / "variables" / "variables.index").read_text() == "values"
    manifest = version_manifest.verify(folder)
    assert (manifest.version, manifest.blessed_by) == (number(pushed), "thresholds")
    assert set(manifest.files) == {"saved_model.pb", "variables/variables.index"}


def test_edge_variants_that_passed_are_part_of_the_version(model: Model, tmp_path: Path) -> None:
    (tmp_path / "edge" / "passed").mkdir(parents=True)
    (tmp_path / "edge" / "failed").mkdir()
    (tmp_path / "edge" / "passed" / "tflite_none.tflite").write_text("file")
    (tmp_path / "edge" / "failed" / "tflite_int8.tflite").write_text("other")
    edge = EdgeModels()
    edge.uri = str(tmp_path / "edge")
    pushed = push(model, True, f"{tmp_path}/pushed", tmp_path / "out", edge=edge)
    manifest = version_manifest.verify(tmp_path / "pushed" / f"{number(pushed)}")
    assert set(manifest.files) == {"saved_model.pb", "variables/variables.index", "edge/tflite_none.tflite"}
    assert not Path(model.uri, "Format-Serving", "edge").exists()


def test_pushes_in_the_same_second_get_different_versions(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick: None
) -> None:
    monkeypatch.chdir(tmp_path)
    versions = [number(push(model, blessed, "pushed", tmp_path / "out")) for blessed in (True, None, True)]
    assert versions == [1700000000, 1700000001, 1700000002]
    visible = {path.name for path in (tmp_path / "pushed").iterdir() if not path.name.startswith(".")}
    assert visible == {*map(str, versions), "registry.json", "rollout"}


def test_model_that_requires_an_approval_is_recorded_and_not_pushed(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the machine that approves the model needs the key.
    monkeypatch.setenv("TFX_PIPELINE_PRIVATE_KEY_FILE", str(tmp_path / "missing.pem"))
    config = PushConfig.model_validate({"approval": "required"})
    pushed = push(model, True, f"{tmp_path}/pushed", tmp_path / "out", config)
    assert (pushed.get_int_custom_property("pushed"), pushed.get_string_custom_property("pushed_version")) == (0, "")
    assert not (tmp_path / "pushed").exists()
    properties = {name: value.string_value for name, value in pushed.mlmd_artifact.custom_properties.items()}
    assert properties["approval"] == "pending"
    candidate = from_properties(properties)
    assert candidate is not None
    assert (candidate.directory, candidate.plan.push) == (f"{tmp_path}/pushed", config)
    described = {
        path: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        for path, content in (("saved_model.pb", b"graph"), ("variables/variables.index", b"values"))
    }
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
    assert candidate.digest == hashlib.sha256(canonical.encode()).hexdigest()
    # An index of ML Metadata on PostgreSQL rejects texts of more than 2,704 bytes.
    assert max(len(text.encode()) for text in properties.values()) <= 2400


def test_model_that_is_not_blessed_is_not_pushed(model: Model, tmp_path: Path) -> None:
    pushed = push(model, False, f"{tmp_path}/pushed", tmp_path / "out")
    assert pushed.get_int_custom_property("pushed") == 0
    assert pushed.get_string_custom_property("pushed_version") == ""
    assert not (tmp_path / "pushed").exists()
    assert not (tmp_path / "out").exists()


def context(config: str) -> BaseExecutor.Context:
    node = pipeline_pb2.PipelineNode()
    run = node.contexts.contexts.add()
    run.type.name = "pipeline_run"
    run.properties["config"].field_value.string_value = config
    return BaseExecutor.Context(
        pipeline_node=node, pipeline_info=pipeline_pb2.PipelineInfo(id="taxi"), pipeline_run_id="r1"
    )


def evaluation(tmp_path: Path, verdict: dict[str, Any] | None) -> ModelEvaluation:
    artifact = ModelEvaluation()
    artifact.uri = str(tmp_path / "evaluation")
    (tmp_path / "evaluation").mkdir()
    if verdict is not None:
        (tmp_path / "evaluation" / "verdict.json").write_text(json.dumps(verdict))
    return artifact


def examples(span: int, fingerprint: str) -> Examples:
    artifact = Examples()
    artifact.span = span
    artifact.set_string_custom_property("input_fingerprint", fingerprint)
    return artifact


def test_manifest_contains_the_provenance(model: Model, tmp_path: Path) -> None:
    verdict = {
        "forced": None,
        "slices": [
            {"slice": {"hour": 5}, "metrics": {"auc": 0.1}},
            {"slice": {}, "metrics": {"auc": 0.93, "calibration": None, "mean": float("nan")}},
        ],
    }
    pushed = push(
        model,
        True,
        f"{tmp_path}/pushed",
        tmp_path / "out",
        context=context('{"a": 1}'),
        evaluation=evaluation(tmp_path, verdict),
        examples=examples(4, "split:all/3,num_files:1\nsplit:all/4,num_files:1\nsplit:odd/4,num_files:1"),
    )
    manifest = version_manifest.read(pushed.get_string_custom_property("pushed_destination"))
    assert (manifest.pipeline, manifest.run, manifest.spans, manifest.metrics) == ("taxi", "r1", (3, 4), {"auc": 0.93})
    assert manifest.config_digest == hashlib.sha256(b'{"a": 1}').hexdigest()
    assert manifest.created.endswith("+00:00")
    assert (manifest.tfx[:2], manifest.tensorflow[:2]) == ("1.", "2.")


@pytest.mark.parametrize(
    ("verdict", "blessed", "blessed_by"),
    [
        ({"forced": "a demo", "slices": []}, True, "forced: a demo"),
        (None, True, "thresholds"),
        (None, None, "nobody"),
    ],
)
def test_manifest_contains_the_blessing(
    model: Model, tmp_path: Path, verdict: dict[str, Any] | None, blessed: bool | None, blessed_by: str
) -> None:
    pushed = push(
        model,
        blessed,
        f"{tmp_path}/pushed",
        tmp_path / "out",
        evaluation=evaluation(tmp_path, verdict),
        examples=examples(2, "split:all,num_files:1"),
    )
    manifest = version_manifest.read(pushed.get_string_custom_property("pushed_destination"))
    assert (manifest.blessed_by, manifest.metrics, manifest.spans) == (blessed_by, {}, (2,))


def test_model_with_warm_up_requests_is_pushed_instead_of_the_trained_model(model: Model, tmp_path: Path) -> None:
    checked = InfraBlessing()
    checked.uri = str(tmp_path / "infra")
    checked.set_int_custom_property("blessed", 1)
    checked.set_int_custom_property("has_model", 1)
    extra = tmp_path / "infra" / "stamped_model" / "assets.extra"
    extra.mkdir(parents=True)
    (extra / "tf_serving_warmup_requests").write_text("requests")
    (extra.parent / "saved_model.pb").write_text("graph")
    pushed = push(model, True, f"{tmp_path}/pushed", tmp_path / "out", infra_blessing=checked)
    manifest = version_manifest.verify(pushed.get_string_custom_property("pushed_destination"))
    assert set(manifest.files) == {"saved_model.pb", "assets.extra/tf_serving_warmup_requests"}
    checked.set_int_custom_property("blessed", 0)
    pushed = push(model, True, f"{tmp_path}/other", tmp_path / "out", infra_blessing=checked)
    assert pushed.get_int_custom_property("pushed") == 0


def stages(tmp_path: Path, model: Model, when: str, pushes: int) -> list[int | None]:
    config = PushConfig.model_validate({"stage_on_push": when})
    result = []
    for _ in range(pushes):
        push(model, True, f"{tmp_path}/pushed", tmp_path / "out", config)
        result.append(serving_state.read(tmp_path / "pushed").stable)
    return result


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("stable", [1700000000, 1700000001]),
        ("first", [1700000000, 1700000000]),
        ("none", [None, None]),
    ],
)
def test_pushed_version_gets_its_stage(
    model: Model, tmp_path: Path, tick: None, when: str, expected: list[int | None]
) -> None:
    assert stages(tmp_path, model, when, 2) == expected
    served = (tmp_path / "pushed" / "rollout" / "models.config").read_text()
    assert ('key: "stable"' in served) is (expected[1] is not None)


def test_pushed_version_is_not_staged_while_a_canary_runs(model: Model, tmp_path: Path, tick: None) -> None:
    stages(tmp_path, model, "stable", 2)
    folder = tmp_path / "pushed"
    running = Stages(stable=1700000000, canary=Canary(version=1700000001, percent=10))
    serving_state.save(folder, serving_state.read(folder).change_stages("canary", running, "me"))
    assert stages(tmp_path, model, "stable", 1) == [1700000000]
    assert serving_state.read(folder).stages == running


def test_newest_versions_and_serving_versions_are_kept(model: Model, tmp_path: Path, tick: None) -> None:
    folder = tmp_path / "pushed"
    (folder / ".removed-5").mkdir(parents=True)
    config = PushConfig(keep=2, stage_on_push="first", rollout=RolloutConfig(base_path="/models/taxi"))
    for _ in range(5):
        push(model, True, str(folder), tmp_path / "out", config)
    assert [version - 1700000000 for version in serving_state.versions(folder)] == [0, 3, 4]
    assert not list(folder.glob(".removed-*"))
    now = serving_state.read(folder)
    assert (now.stable, now.rollout.model_name, now.rollout.base_path) == (1700000000, "taxi", "/models/taxi")
    config = config.model_copy(update={"stage_on_push": "stable"})
    for _ in range(2):
        push(model, True, str(folder), tmp_path / "out", config)
    assert [version - 1700000000 for version in serving_state.versions(folder)] == [5, 6]


def test_remote_folder_keeps_the_newest_versions(model: Model, tmp_path: Path, tick: None) -> None:
    for _ in range(3):
        push(model, True, f"file://{tmp_path}/pushed", tmp_path / "out", PushConfig(keep=2))
    assert serving_state.versions(tmp_path / "pushed") == [1700000001, 1700000002]


def test_damaged_state_is_reported_before_the_push(model: Model, tmp_path: Path) -> None:
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "registry.json").write_text('{"stable": ')
    with pytest.raises(InputError, match=r"registry\.json is damaged"):
        push(model, True, f"{tmp_path}/pushed", tmp_path / "out")
    assert [path.name for path in (tmp_path / "pushed").iterdir()] == ["registry.json"]
