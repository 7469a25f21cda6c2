"""Commands that use a pushed version refuse one whose files differ from its manifest."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest
from pushed import push

from components.base.errors import InputError
from components.monitor import executor
from components.results import version_manifest
from pipeline.cli import predict
from pipeline.core.metadata.store import Store
from pipeline.inspection.served_versions import Versions
from pipeline.registry.versions import PushFolder


@pytest.fixture
def version(tmp_path: Path) -> Path:
    return push(tmp_path / "pushed", 17)


def change_one_byte(folder: Path) -> None:
    content = bytearray((folder / "saved_model.pb").read_bytes())
    content[7] ^= 1
    (folder / "saved_model.pb").write_bytes(content)


def model_of(folder: Path) -> dict[str, object]:
    return predict._select_model(argparse.Namespace(model=f"{folder}/"), None)[2]


def test_predict_verifies_the_folder_of_a_version_or_of_its_copy(version: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(version, tmp_path / "copy"))
    digest = version_manifest.read(version).digest
    for folder in (version, copy):
        assert model_of(folder) == {"folder": f"{folder}/", "version": 17, "digest": digest}
        change_one_byte(folder)
        with pytest.raises(InputError, match=r"saved_model\.pb was changed after the push"):
            model_of(folder)


def test_predict_refuses_a_damaged_manifest_and_accepts_a_model_without_one(version: Path) -> None:
    (version / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="is not a manifest"):
        model_of(version)
    (version / "manifest.json").unlink()
    assert model_of(version) == {"folder": f"{version}/"}


def test_monitor_verifies_a_version_before_it_reads_its_model(version: Path) -> None:
    change_one_byte(version)
    push_folder = PushFolder(str(version.parent), None)
    # The store is not asked, because the version is refused before.
    versions = Versions(Store.__new__(Store), {17: ("run", str(version))}, push_folder.verify)
    with pytest.raises(InputError, match=r"saved_model\.pb was changed after the push"):
        versions[17]


def test_node_monitor_compares_its_copy_of_the_model_with_the_manifest(version: Path, tmp_path: Path) -> None:
    copy, examples = tmp_path / "artifact", tmp_path / "examples" / "Split-train"
    shutil.copytree(tmp_path / "model", copy)
    examples.mkdir(parents=True)
    (examples / "rows.parquet").touch()
    described = {
        "17": {"model": str(copy), "pushed": str(version), "examples": str(examples.parent), "evaluation": None}
    }
    assert set(executor._load_versions(described)) == {17}
    change_one_byte(copy)
    with pytest.raises(InputError, match=r"saved_model\.pb was changed after the push"):
        executor._load_versions(described)
