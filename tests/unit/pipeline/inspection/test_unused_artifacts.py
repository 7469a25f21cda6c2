"""Unused artifacts are those that no newest run, no pushed version and no baseline of the next run depends on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from stored_history import History

from components.base.errors import InputError, MachineError
from pipeline.inspection.unused_artifacts import Unused, find_unused, remove


def unused_names(history: History, keep: int, *versions: str) -> set[str]:
    names = {artifact.id: name for name, artifact in history.artifacts.items()}
    return {names[each.artifact.id] for each in unused_of(history, keep, *versions)}


def unused_of(history: History, keep: int, *versions: str) -> list[Unused]:
    return find_unused(history.store, history.location.parent / "artifacts", "toy", keep, versions)


def blessed_twice_more(history: History) -> None:
    """Add two blessed models, so that the latest two do not belong to the first three runs."""
    for number in (4, 5):
        model = history.writer.artifact("Model", "")
        history.writer.execution(f"r{number}", "Trainer", outputs=[model])
        blessing = history.writer.artifact("ModelBlessing", "", blessed=1)
        history.writer.execution(f"r{number}", "Evaluator", inputs={"model": model}, outputs=[blessing])


def test_artifacts_of_the_newest_runs_are_retained(history: History):
    blessed_twice_more(history)
    assert unused_names(history, 5) == set()
    # The second run took its rows from the first.
    assert unused_names(history, 4) == {"blessing 1", "pushed 1"}
    assert unused_names(history, 3) == {"rows 1", "model 1", "blessing 1", "pushed 1", "blessing 2", "pushed 2"}
    assert unused_names(history, 2) == set(history.artifacts)


def test_lineage_of_a_pushed_version_is_retained(history: History):
    blessed_twice_more(history)
    retained = set(history.artifacts) - unused_names(history, 2, "12")
    assert retained == {"rows 1", "model 2", "blessing 2", "pushed 2", "model 1"}, "with the model's baseline"


def test_latest_blessed_models_are_retained(history: History):
    history.writer.execution("r4", "ExampleGen")
    assert {"blessing 1", "model 1", "blessing 2", "model 2", "rows 1"}.isdisjoint(unused_names(history, 1))
    assert {"model 3", "blessing 3", "rows 3"} <= unused_names(history, 1)


def test_artifacts_outside_of_the_pipelines_folder_are_retained(history: History, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for uri in (str(outside), f"{tmp_path}/artifacts/../outside", f"{tmp_path}/artifacts", "", "/"):
        history.writer.execution("r0", "Importer", outputs=[history.writer.artifact("Schema", uri)])
    blessed_twice_more(history)
    assert {each.artifact.uri for each in unused_of(history, 2)} == {each.uri for each in history.artifacts.values()}
    assert outside.is_dir()


def test_folders_that_retained_artifacts_share_are_retained(history: History):
    blessed_twice_more(history)
    folder = Path(history.artifacts["rows 1"].uri)
    history.writer.execution("r6", "A", outputs=[history.writer.artifact("Examples", str(folder / "content"))])
    history.writer.execution("r6", "B", outputs=[history.writer.artifact("Model", history.artifacts["model 1"].uri)])
    assert unused_names(history, 3) == set(history.artifacts) - {"rows 1", "model 1"}


def test_removed_artifacts_are_marked_deleted(history: History):
    blessed_twice_more(history)
    artifacts = unused_of(history, 2)
    assert {each.bytes for each in artifacts if each.artifact.id == history.number("rows 1")} == {600}
    remove(history.location, artifacts)
    states = {artifact.state for artifact in history.writer.store.get_artifacts() if artifact.uri}
    assert states == {proto.Artifact.DELETED}
    assert list((history.location.parent / "artifacts").iterdir()) == []
    assert unused_of(history, 2) == []


def test_interrupted_removal_is_continued(history: History, monkeypatch: pytest.MonkeyPatch):
    blessed_twice_more(history)

    def full(folder: str) -> None:
        raise OSError(folder)

    artifacts = unused_of(history, 2)
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", full)
        with pytest.raises(MachineError, match="cannot be removed"):
            remove(history.location, artifacts)
    assert unused_names(history, 2) == set(history.artifacts)
    remove(history.location, unused_of(history, 2))
    assert list((history.location.parent / "artifacts").iterdir()) == []


def test_active_run_is_an_input_error(history: History):
    history.writer.execution("r4", "Trainer", "RUNNING")
    with pytest.raises(InputError, match="received run r4, which is running"):
        unused_of(history, 1)
