"""Tests for unused artifacts. The newest runs, pushed versions and the next run's baseline do not depend on them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import InputError, MachineError
from pipeline.inspection.unused_artifacts import Unused, find_unused, remove
from tests.support.runs.stored_history import History


def list_unused_names(history: History, keep: int, *versions: str) -> set[str]:
    names = {artifact.id: name for name, artifact in history.artifacts.items()}
    return {names[unused.artifact.id] for unused in list_unused(history, keep, *versions)}


def list_unused(history: History, keep: int, *versions: str) -> list[Unused]:
    return find_unused(history.store, history.location.parent / "artifacts", "toy", keep, versions)


def add_blessed_models(history: History) -> None:
    """Add two blessed models, so that the latest two do not belong to the first three runs."""
    for number in (4, 5):
        model = history.writer.artifact("Model", "")
        history.writer.execution(f"r{number}", "Trainer", outputs=[model])
        blessing = history.writer.artifact("ModelBlessing", "", blessed=1)
        history.writer.execution(f"r{number}", "Evaluator", inputs={"model": model}, outputs=[blessing])


def test_artifacts_of_the_newest_runs_are_retained(history: History):
    add_blessed_models(history)
    assert list_unused_names(history, 5) == set()
    # The second run reused the rows of the first run.
    assert list_unused_names(history, 4) == {"blessing 1", "pushed 1"}
    assert list_unused_names(history, 3) == {"rows 1", "model 1", "blessing 1", "pushed 1", "blessing 2", "pushed 2"}
    assert list_unused_names(history, 2) == set(history.artifacts)


def test_lineage_of_a_pushed_version_is_retained(history: History):
    add_blessed_models(history)
    retained = set(history.artifacts) - list_unused_names(history, 2, "12")
    assert retained == {"rows 1", "model 2", "blessing 2", "pushed 2", "model 1"}, "with the model's baseline"


def test_model_that_waits_for_an_approval_is_retained_until_a_newer_one_is_pushed(history: History):
    add_blessed_models(history)
    waiting = history.writer.artifact("PushedModel", str(history.location.parent / "artifacts" / "waiting"))
    waiting.custom_properties["approval"].string_value = "pending"
    Path(waiting.uri).mkdir()
    history.artifacts["waiting"] = waiting
    history.writer.execution("r3", "Pusher", outputs=[waiting], inputs={"model": history.artifacts["model 3"]})
    assert {"waiting", "model 3", "rows 3"}.isdisjoint(list_unused_names(history, 1))
    newer = history.writer.artifact("PushedModel", "", pushed=1, pushed_version="99")
    history.writer.execution("r4", "Pusher", outputs=[newer])
    assert {"waiting", "model 3", "rows 3"} <= list_unused_names(history, 1, "99")


def test_latest_blessed_models_are_retained(history: History):
    history.writer.execution("r4", "ExampleGen")
    assert {"blessing 1", "model 1", "blessing 2", "model 2", "rows 1"}.isdisjoint(list_unused_names(history, 1))
    assert {"model 3", "blessing 3", "rows 3"} <= list_unused_names(history, 1)


def test_artifacts_outside_the_pipelines_folder_are_retained(history: History, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for uri in (str(outside), f"{tmp_path}/artifacts/../outside", f"{tmp_path}/artifacts", "", "/"):
        history.writer.execution("r0", "Importer", outputs=[history.writer.artifact("Schema", uri)])
    add_blessed_models(history)
    assert {unused.artifact.uri for unused in list_unused(history, 2)} == {
        artifact.uri for artifact in history.artifacts.values()
    }
    assert outside.is_dir()


def test_folders_that_retained_artifacts_share_are_retained(history: History):
    add_blessed_models(history)
    folder = Path(history.artifacts["rows 1"].uri)
    history.writer.execution("r6", "A", outputs=[history.writer.artifact("Examples", str(folder / "content"))])
    history.writer.execution("r6", "B", outputs=[history.writer.artifact("Model", history.artifacts["model 1"].uri)])
    assert list_unused_names(history, 3) == set(history.artifacts) - {"rows 1", "model 1"}


def test_removed_artifacts_are_marked_deleted(history: History):
    add_blessed_models(history)
    artifacts = list_unused(history, 2)
    assert {unused.bytes for unused in artifacts if unused.artifact.id == history.number("rows 1")} == {600}
    remove(history.location, artifacts)
    states = {artifact.state for artifact in history.writer.store.get_artifacts() if artifact.uri}
    assert states == {proto.Artifact.DELETED}
    assert list((history.location.parent / "artifacts").iterdir()) == []
    assert list_unused(history, 2) == []


def test_interrupted_removal_is_continued(history: History, monkeypatch: pytest.MonkeyPatch):
    add_blessed_models(history)

    def fail(folder: str) -> None:
        raise OSError(folder)

    artifacts = list_unused(history, 2)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", fail)
        with pytest.raises(MachineError, match="cannot be removed"):
            remove(history.location, artifacts)
    assert list_unused_names(history, 2) == set(history.artifacts)
    remove(history.location, list_unused(history, 2))
    assert list((history.location.parent / "artifacts").iterdir()) == []


def test_active_run_is_an_error(history: History):
    history.writer.execution("r4", "Trainer", "RUNNING")
    with pytest.raises(InputError, match="received run r4, which is running"):
        list_unused(history, 1)
