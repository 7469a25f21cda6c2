"""Unused artifacts are those that no newest run, no pushed version and no baseline of the next run depends on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from past import Past

from components.errors import InputError, MachineError
from pipeline.inspection.unused_artifacts import Unused, remove, unused


def unused_names(past: Past, keep: int, *versions: str) -> set[str]:
    names = {artifact.id: name for name, artifact in past.artifacts.items()}
    return {names[each.artifact.id] for each in unused_of(past, keep, *versions)}


def unused_of(past: Past, keep: int, *versions: str) -> list[Unused]:
    return unused(past.store, past.place.parent / "artifacts", "toy", keep, versions)


def blessed_twice_more(past: Past) -> None:
    """Adds two blessed models, so that the latest two do not belong to the first three runs."""
    for number in (4, 5):
        model = past.writer.artifact("Model", "")
        past.writer.execution(f"r{number}", "Trainer", outputs=[model])
        blessing = past.writer.artifact("ModelBlessing", "", blessed=1)
        past.writer.execution(f"r{number}", "Evaluator", inputs={"model": model}, outputs=[blessing])


def test_artifacts_of_the_newest_runs_are_retained(past: Past):
    blessed_twice_more(past)
    assert unused_names(past, 5) == set()
    # The second run took its rows from the first.
    assert unused_names(past, 4) == {"blessing 1", "pushed 1"}
    assert unused_names(past, 3) == {"rows 1", "model 1", "blessing 1", "pushed 1", "blessing 2", "pushed 2"}
    assert unused_names(past, 2) == set(past.artifacts)


def test_the_lineage_of_a_pushed_version_is_retained(past: Past):
    blessed_twice_more(past)
    retained = set(past.artifacts) - unused_names(past, 2, "12")
    assert retained == {"rows 1", "model 2", "blessing 2", "pushed 2", "model 1"}, "with the model's baseline"


def test_the_latest_blessed_models_are_retained(past: Past):
    past.writer.execution("r4", "ExampleGen")
    assert {"blessing 1", "model 1", "blessing 2", "model 2", "rows 1"}.isdisjoint(unused_names(past, 1))
    assert {"model 3", "blessing 3", "rows 3"} <= unused_names(past, 1)


def test_artifacts_outside_of_the_pipelines_folder_are_retained(past: Past, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for uri in (str(outside), f"{tmp_path}/artifacts/../outside", f"{tmp_path}/artifacts", "", "/"):
        past.writer.execution("r0", "Importer", outputs=[past.writer.artifact("Schema", uri)])
    blessed_twice_more(past)
    assert {each.artifact.uri for each in unused_of(past, 2)} == {each.uri for each in past.artifacts.values()}
    assert outside.is_dir()


def test_folders_that_retained_artifacts_share_are_retained(past: Past):
    blessed_twice_more(past)
    folder = Path(past.artifacts["rows 1"].uri)
    past.writer.execution("r6", "A", outputs=[past.writer.artifact("Examples", str(folder / "content"))])
    past.writer.execution("r6", "B", outputs=[past.writer.artifact("Model", past.artifacts["model 1"].uri)])
    assert unused_names(past, 3) == set(past.artifacts) - {"rows 1", "model 1"}


def test_removed_artifacts_are_marked_deleted(past: Past):
    blessed_twice_more(past)
    artifacts = unused_of(past, 2)
    assert {each.bytes for each in artifacts if each.artifact.id == past.number("rows 1")} == {600}
    remove(past.place, artifacts)
    states = {artifact.state for artifact in past.writer.store.get_artifacts() if artifact.uri}
    assert states == {proto.Artifact.DELETED}
    assert list((past.place.parent / "artifacts").iterdir()) == []
    assert unused_of(past, 2) == []


def test_an_interrupted_removal_is_continued(past: Past, monkeypatch: pytest.MonkeyPatch):
    blessed_twice_more(past)

    def full(folder: str) -> None:
        raise OSError(folder)

    artifacts = unused_of(past, 2)
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", full)
        with pytest.raises(MachineError, match="cannot be removed"):
            remove(past.place, artifacts)
    assert unused_names(past, 2) == set(past.artifacts)
    remove(past.place, unused_of(past, 2))
    assert list((past.place.parent / "artifacts").iterdir()) == []


def test_an_active_run_is_an_input_error(past: Past):
    past.writer.execution("r4", "Trainer", "RUNNING")
    with pytest.raises(InputError, match="received run r4, which is running"):
        unused_of(past, 1)
