"""Tests for objects in S3 and Azure Blob Storage, without a server; contract/test_object_stores.py has servers."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from components.base import object_store
from components.pusher import fsspec_objects


def test_folder_that_another_process_has_just_made_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    # s3fs looks for the path itself after an empty listing, and finds the folder if its first file was written then.
    files = SimpleNamespace(find=lambda path, detail: {path: {"type": "directory"}})
    monkeypatch.setitem(object_store._file_systems, ("s3", os.getpid()), files)
    monkeypatch.setattr(object_store, "check_installed", lambda *_: None)
    assert fsspec_objects.open_objects("s3://rides/models/taxi").list_names("rollout/") == []
    files.find = lambda path, detail: {f"{path}/models.config": {"type": "file"}}
    assert fsspec_objects.open_objects("s3://rides/models/taxi/").list_names("rollout/") == ["rollout/models.config"]
