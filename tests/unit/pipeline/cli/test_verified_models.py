"""Tests for commands that use pushed versions, which reject versions whose files differ from the manifest."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from components.base.errors import InputError
from components.monitor import executor
from components.results import version_manifest
from pipeline.cli import predict
from pipeline.cli.served_requests import Versions
from pipeline.core.metadata.store import Store
from pipeline.registry.versions import PushFolder
from tests.support.runs.pushed import push


@pytest.fixture
def version(tmp_path: Path) -> Path:
    return push(tmp_path / "pushed", 17)


def change_one_byte(folder: Path) -> None:
    content = bytearray((folder / "saved_model.pb").read_bytes())
    content[7] ^= 1
    (folder / "saved_model.pb").write_bytes(content)


def select_model(folder: Path) -> dict[str, object]:
    return predict._select_model(argparse.Namespace(model=f"{folder}/"), None)[2]


def test_predict_verifies_a_version_or_its_copy(version: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(version, tmp_path / "copy"))
    digest = version_manifest.read(version).digest
    for folder in (version, copy):
        assert select_model(folder) == {"folder": f"{folder}/", "version": 17, "digest": digest}
        change_one_byte(folder)
        with pytest.raises(InputError, match=r"saved_model\.pb was changed after the push"):
            select_model(folder)


def test_predict_rejects_a_damaged_manifest_but_not_a_missing_one(version: Path) -> None:
    (version / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="is not a manifest"):
        select_model(version)
    (version / "manifest.json").unlink()
    assert select_model(version) == {"folder": f"{version}/"}


def test_monitor_verifies_a_version_before_reading_its_model(version: Path) -> None:
    change_one_byte(version)
    push_folder = PushFolder(str(version.parent), None)
    # The store is not used, because the verification fails first.
    versions = Versions(Store.__new__(Store), {17: ("run", str(version))}, push_folder.verify)
    with pytest.raises(InputError, match=r"saved_model\.pb was changed after the push"):
        versions[17]


def test_monitor_node_verifies_its_copy_of_the_model(version: Path, tmp_path: Path) -> None:
    copy, examples = tmp_path / "artifact", tmp_path / "examples" / "Split-train"
    shutil.copytree(tmp_path / "model", copy)
    examples.mkdir(parents=True)
    (examples / "rows.parquet").touch()
    versions = {
        "17": {"model": str(copy), "pushed": str(version), "examples": str(examples.parent), "evaluation": None}
    }
    assert set(executor._load_versions(versions)) == {17}
    change_one_byte(copy)
    with pytest.raises(InputError, match=r"saved_model\.pb was changed after the push"):
        executor._load_versions(versions)
