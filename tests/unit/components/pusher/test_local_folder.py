"""Tests of the local push folder: a version is complete or absent, even if the push is interrupted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from components.pusher import local_folder
from components.pusher.open_store import open_store
from components.pusher.store import find_removable
from components.results import version_manifest
from tests.support.runs.pushed import PROVENANCE

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "variables").mkdir(parents=True)
    (folder / "assets" / "empty").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph" * 1000)
    (folder / "variables" / "variables.index").write_bytes(b"values" * 50_000)
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def visible(folder: Path) -> list[str]:
    """Return the names of the versions that a model server sees: the subfolders whose names are numbers."""
    return sorted(path.name for path in folder.iterdir() if path.name.isdecimal())


def unfinished(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.isdecimal() and path.is_dir()]


def test_version_has_all_files_of_the_model(model: Path, tmp_path: Path) -> None:
    path, version = local_folder.add_version(str(model), str(tmp_path / "a" / "pushed"), 1700000000)
    assert (path, version) == (f"{tmp_path}/a/pushed/1700000000", 1700000000)
    assert tree(Path(path)) == tree(model)
    assert (Path(path).stat().st_mode, Path(path, "saved_model.pb").stat().st_mode) == (
        model.stat().st_mode,
        (model / "saved_model.pb").stat().st_mode,
    )


def test_version_numbers_increase_even_if_the_clock_goes_back(model: Path, tmp_path: Path) -> None:
    pushed = tmp_path / "pushed"
    (pushed / "notes").mkdir(parents=True)
    assert [local_folder.add_version(str(model), str(pushed), timestamp)[1] for timestamp in (50, 50, 40, 60)] == [
        50,
        51,
        52,
        60,
    ]


def test_concurrent_pushes_get_different_versions(model: Path, tmp_path: Path) -> None:
    with CONTEXT.Pool(3) as pool:
        pushed_versions = pool.starmap(local_folder.add_version, [(str(model), str(tmp_path / "pushed"), 7)] * 6)
    assert sorted(version for _, version in pushed_versions) == [7, 8, 9, 10, 11, 12]
    assert all(tree(Path(path)) == tree(model) for path, _ in pushed_versions)


def test_killed_push_does_not_create_a_version(model: Path, tmp_path: Path) -> None:
    pushed = tmp_path / "pushed"
    local_folder.add_version(str(model), str(pushed), 1)
    # Copying the pipe blocks until this test writes to it. At that time, saved_model.pb has been copied.
    pipe = model / "variables" / "pipe"
    os.mkfifo(pipe)
    process = CONTEXT.Process(target=local_folder.add_version, args=(str(model), str(pushed), 2))
    process.start()
    with pipe.open("wb", buffering=0) as writer:  # blocks until the pusher opens the other end
        writer.write(b"half")
        assert visible(pushed) == ["1"]
        assert (pushed / unfinished(pushed)[0] / "saved_model.pb").exists()
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    assert visible(pushed) == ["1"]
    # The next push removes the leftover.
    pipe.unlink()
    assert local_folder.add_version(str(model), str(pushed), 2)[1] == 2
    assert unfinished(pushed) == []
    assert tree(pushed / "2") == tree(model)


def write_manifest(unfinished: Path, number: int) -> None:
    version_manifest.write(unfinished, PROVENANCE.model_copy(update={"version": number}))


def push_and_prune(model: Path, pushed: Path) -> None:
    store = open_store(str(pushed))
    for _ in range(20):
        local_folder.add_version(str(model), str(pushed), 1, write_manifest)
        for version in find_removable(store, store.read(), 2):
            store.remove(version)


def test_reader_only_sees_complete_versions(model: Path, tmp_path: Path) -> None:
    pushed = tmp_path / "pushed"
    pushed.mkdir()
    pusher = threading.Thread(target=push_and_prune, args=(model, pushed))
    pusher.start()
    seen = set()
    while pusher.is_alive():
        for name in visible(pushed):
            try:
                seen.add(version_manifest.verify(pushed / name).version)
            except InputError:
                # The version was removed while it was read.
                assert not (pushed / name).exists()
    pusher.join()
    assert seen
    assert visible(pushed) == ["19", "20"]
    assert unfinished(pushed) == []


def push_that_fails(model: Path, pushed: Path, first: str, shell: str) -> subprocess.CompletedProcess[str]:
    """Push in a new process, which prints the error and the remaining entries of the folder.

    Args:
        model: Folder of the model.
        pushed: Push folder.
        first: Python statements that run before the push.
        shell: Shell command that starts the Python process.
    """
    script = (
        f"import os\n{first}\nfrom components.base.errors import find\nfrom components.pusher import local_folder\n"
        f"try:\n    local_folder.add_version({str(model)!r}, {str(pushed)!r}, 2)\n"
        f"except OSError as error:\n    print(find(error) or error.strerror, sorted(os.listdir({str(pushed)!r})))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "SCRIPT": script}
    command = ["sh", "-c", f'{shell} {sys.executable} -c "$SCRIPT"']
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


def test_failed_write_does_not_create_a_version(model: Path, tmp_path: Path) -> None:
    pushed = tmp_path / "pushed"
    local_folder.add_version(str(model), str(pushed), 1)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    process = push_that_fails(model, pushed, limit, "exec")
    assert process.stdout == "File too large ['.push.lock', '1']\n"


def test_full_disk_does_not_create_a_version(model: Path, tmp_path: Path) -> None:
    pushed = tmp_path / "pushed"
    pushed.mkdir()
    small = f"unshare --mount --map-root-user sh -c 'mount -t tmpfs -o size=128k none {pushed} && exec \"$@\"' -"
    process = push_that_fails(model, pushed, "", small)
    if "unshare" in process.stderr or "mount" in process.stderr:
        pytest.skip("this machine lets no user mount a small disk")
    assert process.stdout.startswith("error[1]: the disk is full: ")
    assert process.stdout.endswith(" ['.push.lock']\n")


def test_checking_a_writable_folder_does_not_change_it(tmp_path: Path) -> None:
    local_folder.check_writable(str(tmp_path / "a" / "b"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    local_folder.check_writable(str(tmp_path / "there"))
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]
    local_folder.check_writable("gs://bucket/models")


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        (lambda folder: folder / "file" / "pushed", "a file has this name ({folder}/file)"),
        (lambda folder: folder / "file", "a file has this name"),
        (lambda folder: Path("/proc/pushed"), "No such file or directory"),
        (lambda folder: folder / ("x" * 300), "File name too long"),
    ],
)
def test_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, directory: Callable[[Path], Any], reason: str
) -> None:
    (tmp_path / "file").write_text("")
    requested = directory(tmp_path)
    with pytest.raises(InputError) as raised:
        local_folder.check_writable(str(requested))
    assert raised.value.headline == f"cannot write to the push folder {requested}: {reason.format(folder=tmp_path)}"
    assert raised.value.remedy == "set push.directory to a folder that you may write to"
