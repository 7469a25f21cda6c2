"""Atomic replacement and exclusive locks work with real files, a full disk and a second process."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from components.base.errors import InputError
from components.base.files import exclusive_lock, is_remote, open_atomically, open_regular, read_text, write_atomically

SPAWN = multiprocessing.get_context("spawn")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("path", "remote"), [("gs://b/f", True), ("/a/b", False), ("a:/b", False)])
def test_url_is_remote(path: str, remote: bool):
    assert is_remote(path) is remote


def test_file_is_replaced_in_a_folder_that_is_created(tmp_path: Path):
    file = tmp_path / "new" / "file.json"
    write_atomically(file, "ä")
    write_atomically(file, b"second")
    assert file.read_bytes() == b"second"
    assert names(file.parent) == ["file.json"]


def test_permissions_follow_the_umask(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_failed_write_keeps_only_the_old_content(tmp_path: Path):
    file = tmp_path / "file"
    write_atomically(file, "old")
    with pytest.raises(OSError, match="No space left"):
        _write_to_a_full_disk(file)
    assert (file.read_text(), names(tmp_path)) == ("old", ["file"])


def test_readers_never_see_partial_content_while_many_threads_write(tmp_path: Path):
    file, size = tmp_path / "file", 1 << 16
    write_atomically(file, b"0" * size)

    def write(digit: int) -> None:
        for _ in range(50):
            write_atomically(file, str(digit).encode() * size)

    writers = [threading.Thread(target=write, args=(digit,)) for digit in range(4)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        content = file.read_bytes()
        assert len(content) == size
        assert len(set(content)) == 1
        seen += 1
    assert seen
    assert names(tmp_path) == ["file"]


def _write_to_a_full_disk(file: Path) -> None:
    with open_atomically(file) as opened:
        opened.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")


def _hold(path: Path, pipe: Connection) -> None:
    with exclusive_lock(path):
        pipe.send("locked")
        pipe.recv()


def test_lock_excludes_another_process_until_it_is_killed(tmp_path: Path):
    ours, theirs = SPAWN.Pipe()
    holder = SPAWN.Process(target=_hold, args=(tmp_path / "lock", theirs))
    holder.start()
    assert ours.recv() == "locked"
    with pytest.raises(BlockingIOError), exclusive_lock(tmp_path / "lock", wait=False):
        pass
    holder.kill()
    with exclusive_lock(tmp_path / "lock"):
        pass
    holder.join()


def test_special_files_are_rejected_without_blocking(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("link")
    for path, received in ((tmp_path / "pipe", "a FIFO"), (tmp_path, "a folder"), ("/dev/zero", "a device")):
        with pytest.raises(InputError, match=f"{path}: expected a file, received {received}"):
            open_regular(path)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_regular(tmp_path / "link")


def test_text_must_be_utf_8_and_of_bounded_size(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes("ä".encode())
    assert read_text(file, 2) == "ä"
    with pytest.raises(InputError, match="expected at most 1 bytes, received more"):
        read_text(file, 1)
    file.write_bytes(b"\xff")
    with pytest.raises(InputError, match="expected text in UTF-8, received other bytes"):
        read_text(file, 2)
