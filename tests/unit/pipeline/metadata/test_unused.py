"""What can go is what neither the newest runs, nor a pushed version, nor the next comparison needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from past import Past

from components.errors import InputError, MachineError
from pipeline.metadata.unused import Unused, remove, unused


def going(past: Past, keep: int, *versions: str) -> set[str]:
    names = {artifact.id: name for name, artifact in past.artifacts.items()}
    return {names[each.artifact.id] for each in found(past, keep, *versions)}


def found(past: Past, keep: int, *versions: str) -> list[Unused]:
    return unused(past.store, past.place.parent / "artifacts", "toy", keep, versions)


def blessed_twice_more(past: Past) -> None:
    """So that the latest two blessed models are none of the first three runs'."""
    for number in (4, 5):
        model = past.writer.artifact("Model", "")
        past.writer.execution(f"r{number}", "Trainer", outputs=[model])
        blessing = past.writer.artifact("ModelBlessing", "", blessed=1)
        past.writer.execution(f"r{number}", "Evaluator", inputs={"model": model}, outputs=[blessing])


def test_the_newest_runs_stay_whole(past: Past):
    blessed_twice_more(past)
    assert going(past, 5) == set()
    # The second run took its rows from the first.
    assert going(past, 4) == {"blessing 1", "pushed 1"}
    assert going(past, 3) == {"rows 1", "model 1", "blessing 1", "pushed 1", "blessing 2", "pushed 2"}
    assert going(past, 2) == set(past.artifacts)


def test_what_a_pushed_version_was_made_of_stays(past: Past):
    blessed_twice_more(past)
    stays = set(past.artifacts) - going(past, 2, "12")
    assert stays == {"rows 1", "model 2", "blessing 2", "pushed 2", "model 1"}, "and the model it was compared with"


def test_the_latest_blessed_models_stay(past: Past):
    past.writer.execution("r4", "ExampleGen")
    assert {"blessing 1", "model 1", "blessing 2", "model 2", "rows 1"}.isdisjoint(going(past, 1))
    assert {"model 3", "blessing 3", "rows 3"} <= going(past, 1)


def test_nothing_outside_of_the_pipeline_s_folder(past: Past, tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for uri in (str(theirs), f"{tmp_path}/artifacts/../theirs", f"{tmp_path}/artifacts", "", "/"):
        past.writer.execution("r0", "Importer", outputs=[past.writer.artifact("Schema", uri)])
    blessed_twice_more(past)
    assert {each.artifact.uri for each in found(past, 2)} == {each.uri for each in past.artifacts.values()}
    assert theirs.is_dir()


def test_a_folder_that_somebody_else_needs_too(past: Past):
    blessed_twice_more(past)
    whole = Path(past.artifacts["rows 1"].uri)
    past.writer.execution("r6", "A", outputs=[past.writer.artifact("Examples", str(whole / "content"))])
    past.writer.execution("r6", "B", outputs=[past.writer.artifact("Model", past.artifacts["model 1"].uri)])
    assert going(past, 3) == set(past.artifacts) - {"rows 1", "model 1"}


def test_they_are_marked_and_removed_and_a_second_time_nothing_is_left(past: Past):
    blessed_twice_more(past)
    several = found(past, 2)
    assert {each.bytes for each in several if each.artifact.id == past.number("rows 1")} == {600}
    remove(past.place, several)
    states = {artifact.state for artifact in past.writer.store.get_artifacts() if artifact.uri}
    assert states == {proto.Artifact.DELETED}
    assert list((past.place.parent / "artifacts").iterdir()) == []
    assert found(past, 2) == []


def test_broken_off_it_is_gone_on_with(past: Past, monkeypatch: pytest.MonkeyPatch):
    blessed_twice_more(past)

    def full(folder: str) -> None:
        raise OSError(folder)

    several = found(past, 2)
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", full)
        with pytest.raises(MachineError, match="cannot be removed"):
            remove(past.place, several)
    assert going(past, 2) == set(past.artifacts)
    remove(past.place, found(past, 2))
    assert list((past.place.parent / "artifacts").iterdir()) == []


def test_not_while_a_run_goes_on(past: Past):
    past.writer.execution("r4", "Trainer", "RUNNING")
    with pytest.raises(InputError, match="run r4 is still going on"):
        found(past, 1)
