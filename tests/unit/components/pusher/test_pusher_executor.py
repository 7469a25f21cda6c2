"""The Pusher as a node: it pushes what is blessed, and marks it as TFX's own does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfx.types import Channel
from tfx.types.standard_artifacts import Model, ModelBlessing, PushedModel

from components.pusher.component import pusher
from components.pusher.config import PushConfig
from components.pusher.executor import Executor


@pytest.fixture
def model(tmp_path: Path) -> Model:
    artifact = Model()
    artifact.uri = str(tmp_path / "model")
    (tmp_path / "model" / "Format-Serving" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "Format-Serving" / "saved_model.pb").write_text("graph")
    (tmp_path / "model" / "Format-Serving" / "variables" / "variables.index").write_text("values")
    return artifact


def push(model: Model, blessed: bool | None, directory: str, out: Path) -> PushedModel:
    node = pusher(Channel(type=Model), None if blessed is None else Channel(type=ModelBlessing), directory)
    assert node.id == "Pusher"
    pushed, inputs = PushedModel(), {"model": [model]}
    pushed.uri = str(out)
    if blessed is not None:
        blessing = ModelBlessing()
        blessing.set_int_custom_property("blessed", int(blessed))
        inputs["model_blessing"] = [blessing]
    Executor().Do(inputs, {"pushed_model": [pushed]}, node.exec_properties)
    return pushed


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_blessed_model_is_pushed_and_kept(model: Model, tmp_path: Path, scheme: str) -> None:
    pushed = push(model, True, f"{scheme}{tmp_path}/pushed", tmp_path / "out")
    version = pushed.get_string_custom_property("pushed_version")
    assert pushed.get_int_custom_property("pushed") == 1
    assert pushed.get_string_custom_property("pushed_destination") == f"{scheme}{tmp_path}/pushed/{version}"
    for folder in (tmp_path / "pushed" / version, tmp_path / "out"):
        assert (folder / "saved_model.pb").read_text() == "graph"
        assert (folder / "variables" / "variables.index").read_text() == "values"


def test_the_same_second_twice_is_two_versions(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    versions = [
        int(push(model, blessed, "pushed", tmp_path / "out").get_string_custom_property("pushed_version"))
        for blessed in (True, None, True)
    ]
    assert versions == sorted(set(versions))
    assert {path.name for path in (tmp_path / "pushed").iterdir()} == {*map(str, versions), ".push.lock"}


def test_a_model_that_is_not_blessed_stays_where_it_is(model: Model, tmp_path: Path) -> None:
    pushed = push(model, False, f"{tmp_path}/pushed", tmp_path / "out")
    assert pushed.get_int_custom_property("pushed") == 0
    assert pushed.get_string_custom_property("pushed_version") == ""
    assert not (tmp_path / "pushed").exists()
    assert not (tmp_path / "out").exists()


def test_the_section_knows_one_field() -> None:
    assert PushConfig().directory is None
    assert PushConfig(directory="gs://bucket/models").directory == "gs://bucket/models"
