"""The manifest of a version reveals every change after the push."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.base.errors import InputError
from components.results import version_manifest
from components.results.version_manifest import Approval, LocalFolder, Provenance

PROVENANCE = Provenance(
    pipeline="taxi",
    version=17,
    run="20261121T162305-eb56",
    created="2026-11-21T16:24:01+00:00",
    spans=(3, 4),
    metrics={"auc": 0.93, "binary_accuracy": 0.9},
    blessed_by="thresholds",
    config_digest="c0ffee",
    tfx="1.16.0",
    tensorflow="2.16.2",
)
FILES = {"saved_model.pb": b"graph" * 9, "variables/variables.index": b"values", "assets/empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "17", FILES)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def verification_error(folder: Path) -> str:
    with pytest.raises(InputError) as raised:
        version_manifest.verify(folder)
    return raised.value.headline.replace(f"{folder}", "17")


def test_approval_is_part_of_the_digest_and_absent_without_one(folder: Path, tmp_path: Path) -> None:
    version_manifest.write(folder, PROVENANCE)
    # Older releases refuse unknown fields, and manifests that they have written must keep their digests.
    assert "approval" not in json.loads((folder / "manifest.json").read_text())
    approval = Approval(by="Ana Diaz", at="2026-11-30T19:00:00+00:00", note="looked at the slices", account="ana")
    approved = write(tmp_path / "approved" / "17", FILES)
    written = version_manifest.write(approved, PROVENANCE.model_copy(update={"approval": approval}))
    assert version_manifest.verify(approved) == written
    manifest = (approved / "manifest.json").read_text()
    assert json.loads(manifest)["approval"]["by"] == "Ana Diaz"
    (approved / "manifest.json").write_text(manifest.replace("Ana Diaz", "Eve"))
    assert "its digest does not match" in verification_error(approved)


def test_digest_of_files_depends_on_every_path_and_byte(folder: Path) -> None:
    digests = {version_manifest.compute_digest(version_manifest.describe(LocalFolder(folder)))}
    (folder / "assets" / "empty").write_text("x")
    digests.add(version_manifest.compute_digest(version_manifest.describe(LocalFolder(folder))))
    (folder / "assets" / "empty").rename(folder / "assets" / "full")
    files = version_manifest.describe(LocalFolder(folder))
    digests.add(version_manifest.compute_digest(files))
    assert len(digests) == 3
    assert version_manifest.compute_digest(dict(reversed(files.items()))) in digests


def test_written_manifest_is_read_and_verified(folder: Path) -> None:
    written = version_manifest.write(folder, PROVENANCE)
    assert version_manifest.read(folder) == version_manifest.verify(folder) == written
    fields = json.loads((folder / "manifest.json").read_text())
    assert (fields["format"], fields["version"], fields["spans"], fields["metrics"]["auc"]) == (1, 17, [3, 4], 0.93)
    assert list(fields["files"]) == ["assets/empty", "saved_model.pb", "variables/variables.index"]
    empty = hashlib.sha256(b"").hexdigest()
    assert fields["files"]["assets/empty"] == {"sha256": empty, "bytes": 0}


def test_equal_files_and_provenance_have_equal_manifests(folder: Path, tmp_path: Path) -> None:
    version_manifest.write(folder, PROVENANCE)
    other_folder = write(tmp_path / "b" / "17", dict(reversed(FILES.items())))
    version_manifest.write(other_folder, PROVENANCE)
    assert (folder / "manifest.json").read_bytes() == (other_folder / "manifest.json").read_bytes()


def test_manifest_is_never_overwritten(folder: Path) -> None:
    version_manifest.write(folder, PROVENANCE)
    with pytest.raises(FileExistsError):
        version_manifest.write(folder, PROVENANCE)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda folder: (folder / "variables" / "variables.index").unlink(), "17/variables/variables.index is missing"),
        (
            lambda folder: (folder / "assets" / "new").write_text(""),
            "17/assets/new is not in the manifest: it was added after the push",
        ),
        (
            lambda folder: (folder / "saved_model.pb").write_bytes(b"graph" * 8 + b"grapH"),
            "17/saved_model.pb was changed after the push: its content differs",
        ),
        (lambda folder: (folder / "manifest.json").unlink(), "17: expected a manifest.json, found none"),
        (
            lambda folder: (folder / "manifest.json").write_text("{"),
            "17/manifest.json is not a manifest: EOF while parsing an object",
        ),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "17/manifest.json is not a manifest: pipeline: "),
        (
            lambda folder: (folder / "assets" / "link").symlink_to("/etc/hostname"),
            "17: expected files and folders, received 'assets/link': a link",
        ),
        (
            lambda folder: os.mkfifo(folder / "pipe"),
            "17: expected files and folders, received 'pipe': neither a file nor a folder",
        ),
        (
            lambda folder: os.close(os.open(os.fsencode(folder) + b"/\xff", os.O_CREAT)),
            "17: expected files and folders, received '\\udcff': its name is not UTF-8",
        ),
    ],
)
def test_first_difference_is_named(folder: Path, change: Callable[[Path], object], expected: str) -> None:
    version_manifest.write(folder, PROVENANCE)
    change(folder)
    assert verification_error(folder).startswith(expected)


def test_version_under_another_number_is_rejected(folder: Path) -> None:
    version_manifest.write(folder, PROVENANCE)
    folder.rename(folder.with_name("99"))
    assert verification_error(folder.with_name("99")).endswith("expected version 99, received the manifest of 17")


def test_manifest_that_is_a_fifo_or_deeply_nested_is_rejected(folder: Path) -> None:
    version_manifest.write(folder, PROVENANCE)
    manifest = folder / version_manifest.NAME
    manifest.write_text("[" * 200_000)
    with pytest.raises(InputError, match="is not a manifest: recursion limit exceeded"):
        version_manifest.verify(folder)
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(InputError, match="expected a file, received a FIFO"):
        version_manifest.verify(folder)


def test_link_instead_of_the_manifest_is_rejected(folder: Path, tmp_path: Path) -> None:
    version_manifest.write(folder, PROVENANCE)
    (folder / "manifest.json").rename(tmp_path / "elsewhere")
    (folder / "manifest.json").symlink_to(tmp_path / "elsewhere")
    assert verification_error(folder).startswith("17/manifest.json cannot be read")


def test_only_regular_files_are_pushed(folder: Path) -> None:
    (folder / "assets" / "link").symlink_to("empty")
    with pytest.raises(InputError, match="assets/link"):
        version_manifest.write(folder, PROVENANCE)


@pytest.mark.parametrize(("name", "expected"), [("17", True), ("0", True), (".17", False), ("1a", False), ("٣", False)])
def test_version_has_a_name_that_a_model_server_loads(name: str, expected: bool) -> None:
    assert version_manifest.is_version(name) is expected


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1).filter(
    lambda name: name not in (".", "..", version_manifest.NAME) and len(name.encode()) < 200
)
TREES = st.dictionaries(NAMES, st.binary(max_size=64), min_size=1, max_size=4)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Return a function that names a new folder for every example."""
    numbers = iter(range(1 << 30))
    return lambda: tmp_path / f"{next(numbers)}" / "17"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES, data=st.data())
def test_every_change_is_detected(fresh: Callable[[], Path], tree: dict[str, bytes], data: st.DataObject) -> None:
    folder = write(fresh(), {f"deep/{name}" if len(name) % 2 else name: tree[name] for name in tree})
    version_manifest.write(folder, PROVENANCE)
    version_manifest.verify(folder)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths), "file")
    how = data.draw(st.sampled_from(["byte", "shorter", "longer", "remove", "rename", "add"]), "change")
    content = path.read_bytes()
    if how == "byte" and content:
        at = data.draw(st.integers(0, len(content) - 1), "at")
        byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]), "byte")
        path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
    elif how == "shorter" and content:
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1), "length")])
    elif how == "remove":
        path.unlink()
    elif how == "rename":
        path.rename(path.with_name(f"{path.name[:20]}~renamed"))
    elif how == "add":
        path.with_name(f"{path.name[:20]}~added").write_bytes(content)
    else:
        path.write_bytes(content + b"\n")
    with pytest.raises(InputError):
        version_manifest.verify(folder)
