"""Tests of a push folder in a bucket, with a fake Cloud Storage: killed and concurrent processes, and errors."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.base.errors import InputError
from components.pusher.open_store import open_store
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.runs.command import light_command
from tests.support.runs.push_folders import Remote, push_folder

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Remote]:
    with push_folder("gs", tmp_path) as files:
        assert isinstance(files, Remote)
        for number in (1, 2, 3, 4):
            files.push(number)
        yield files


@pytest.fixture
def folder(files: Remote) -> PushFolder:
    return PushFolder(files.path, None)


def stable(files: Remote, name: str) -> str:
    return files.read(f"rollout/{name}").decode().partition('key: "stable" value: ')[2].partition(" ")[0]


def promote_until_killed(files: Remote, folder: PushFolder, number: int, written: str) -> None:
    """Start a process that promotes a version, and kill it once it has written the file `written`."""
    process = CONTEXT.Process(target=promotion.promote, args=(PushFolder(files.path, None), number))
    files.bucket.awaited[written] = lambda: os.kill(process.pid or 0, signal.SIGKILL)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert folder.state().stable == number


@pytest.mark.extended
@pytest.mark.parametrize("written", ["registry.json", "rollout/models.config"])
def test_killed_change_is_completed_by_repeating_it(files: Remote, folder: PushFolder, written: str) -> None:
    promotion.promote(folder, 1)
    promote_until_killed(files, folder, 2, written)
    assert "versions: 2 " not in files.read("rollout/models-stable.config").decode()
    promotion.promote(folder, 2)
    assert [change.after.stable for change in folder.state().history] == [1, 2]
    assert stable(files, "models.config") == "2"
    assert "versions: 2 " in files.read("rollout/models-stable.config").decode()


def test_killed_change_is_completed_by_the_next_change(files: Remote, folder: PushFolder) -> None:
    promotion.promote(folder, 1)
    promote_until_killed(files, folder, 2, "registry.json")
    promotion.set_canary(folder, 3, 10)
    assert [change.action for change in folder.state().history] == ["promote", "promote", "canary"]
    assert stable(files, "models.config") == "2"


@pytest.mark.parametrize("written", ["registry.json", "rollout/models.config", "rollout/models-stable.config"])
def test_overtaken_change_does_not_restore_older_files(files: Remote, folder: PushFolder, written: str) -> None:
    promotion.promote(folder, 1)
    other_folder = PushFolder(files.path, None)
    # A second change runs from beginning to end between two writes of the first change.
    files.bucket.awaited[written] = lambda: promotion.promote(other_folder, 3)
    promotion.promote(folder, 2)
    assert [change.after.stable for change in folder.state().history] == [1, 2, 3]
    assert stable(files, "models.config") == "3"
    assert "versions: 3 " in files.read("rollout/models-stable.config").decode()


def test_change_is_decided_again_after_a_concurrent_change(files: Remote, folder: PushFolder) -> None:
    promotion.promote(folder, 1)
    store = open_store(files.path)
    decided = []

    def decide(now: promotion.State) -> promotion.State:
        decided.append(now.stable)
        if len(decided) == 1:
            promotion.promote(folder, 2)
        return now.change_stages("unstage", promotion.Stages(), "me")

    assert store.change(decide).stable is None
    assert decided == [1, 2]
    assert [change.action for change in folder.state().history] == ["promote", "promote", "unstage"]


def test_change_whose_response_is_lost_is_applied_once(files: Remote, folder: PushFolder) -> None:
    promotion.promote(folder, 1)
    promotion.set_canary(folder, 2, 10)
    files.bucket.lost.append("registry.json")
    # A second attempt would fail, because the canary does not exist any more.
    assert promotion.stop(folder).canary is None
    assert [change.action for change in folder.state().history] == ["promote", "canary", "stop"]


def test_version_without_its_last_file_does_not_count(files: Remote, folder: PushFolder) -> None:
    files.delete("3/saved_model.pb")
    assert folder.versions() == [1, 2, 4]
    assert open_store(files.path).leftovers() == [3]
    with pytest.raises(InputError, match="has no version 3; the newest is 4"):
        promotion.promote(folder, 3)
    open_store(files.path).remove(3)
    assert open_store(files.path).leftovers() == []


def test_kserve_reads_directly_from_the_bucket(files: Remote, folder: PushFolder) -> None:
    promotion.promote(folder, 1)
    assert f"storageUri: {files.path}" in files.read("rollout/inference-service.yaml").decode()


def test_denied_write_is_an_error(files: Remote, folder: PushFolder) -> None:
    files.bucket.refused.append("registry.json")
    with pytest.raises(InputError, match=r"gs://bucket/models/taxi/registry\.json: access is denied") as raised:
        promotion.promote(folder, 1)
    assert "role" in raised.value.remedy


def test_missing_bucket_is_an_error(files: Remote) -> None:
    files.bucket.missing.add("none")
    with pytest.raises(InputError, match="gs://none/models does not exist"):
        PushFolder("gs://none/models", None).versions()


def test_missing_credentials_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(InputError, match="expected credentials of Google Cloud, found none"):
        open_store("gs://bucket/models").read()


def test_wrong_address_of_an_emulator_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost")
    with pytest.raises(InputError, match="expected the URL of a server: Invalid URL 'localhost"):
        open_store("gs://bucket/models").read()


@pytest.mark.extended
def test_commands_do_not_import_tfx(files: Remote, folder: PushFolder) -> None:
    promotion.promote(folder, 1)
    listed = light_command("models", "--models", files.path)
    assert (listed.exit_code, listed.err) == (0, "")
    assert [line.split()[:2] for line in listed.out.splitlines()[-1:]] == [["1", "stable"]]
    rolled = light_command("models", "canary", "2", "--percent", "5", "--models", files.path)
    assert (rolled.out, rolled.err) == (f"{files.path}: stable 1, canary 2 at 5 %\n", "")
    verified = light_command("models", "verify", "1", "--models", files.path)
    assert verified.out.startswith("1: as pushed; 2 files")
