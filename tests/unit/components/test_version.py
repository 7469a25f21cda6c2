"""A version's manifest: whatever is changed in a version after its push is told."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components import version
from components.errors import InputError
from components.version import Facts, LocalFolder

FACTS = Facts(
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


def refusal(folder: Path, key: bytes | None = None) -> str:
    with pytest.raises(InputError) as raised:
        version.verify(folder, key)
    return raised.value.headline.replace(f"{folder}", "17")


def test_what_is_written_is_read_and_holds(folder: Path) -> None:
    written = version.write(folder, FACTS)
    assert version.read(folder) == version.verify(folder) == written
    assert written.signature is None
    told = json.loads((folder / "manifest.json").read_text())
    assert (told["format"], told["version"], told["spans"], told["metrics"]["auc"]) == (1, 17, [3, 4], 0.93)
    assert list(told["files"]) == ["assets/empty", "saved_model.pb", "variables/variables.index"]
    empty = hashlib.sha256(b"").hexdigest()
    assert told["files"]["assets/empty"] == {"sha256": empty, "bytes": 0}


def test_the_same_files_and_facts_have_the_same_manifest(folder: Path, tmp_path: Path) -> None:
    version.write(folder, FACTS, b"key")
    other = write(tmp_path / "b" / "17", dict(reversed(FILES.items())))
    version.write(other, FACTS, b"key")
    assert (folder / "manifest.json").read_bytes() == (other / "manifest.json").read_bytes()


def test_a_manifest_is_never_written_twice(folder: Path) -> None:
    version.write(folder, FACTS)
    with pytest.raises(FileExistsError):
        version.write(folder, FACTS)


def test_with_a_key_only_what_was_signed_with_it_passes(folder: Path) -> None:
    written = version.write(folder, FACTS, b"key")
    assert written.signature is not None
    assert version.verify(folder, b"key") == version.verify(folder) == written
    assert refusal(folder, b"another") == "17/manifest.json: the signature does not fit the key"
    unsigned = written.model_copy(update={"signature": None})
    (folder / "manifest.json").write_bytes(version.rendered(unsigned))
    assert refusal(folder, b"key") == "17/manifest.json: expected a signature, found none"


def test_without_the_key_nobody_signs_for_other_files(folder: Path) -> None:
    written = version.write(folder, FACTS, b"key")
    (folder / "saved_model.pb").write_bytes(b"mine")
    forged = version.manifest(version.describe(LocalFolder(folder)), FACTS, b"a guess")
    for signature in (forged.signature, written.signature):
        (folder / "manifest.json").write_bytes(version.rendered(forged.model_copy(update={"signature": signature})))
        assert "signature does not fit" in refusal(folder, b"key")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda folder: (folder / "variables" / "variables.index").unlink(), "17/variables/variables.index is missing"),
        (
            lambda folder: (folder / "assets" / "new").write_text(""),
            "17/assets/new is not in the manifest: it was added after the push",
        ),
        (
            lambda folder: (folder / "saved_model.pb").write_bytes(b"graph" * 8 + b"grapH"),
            "17/saved_model.pb is not what was pushed: its content differs",
        ),
        (lambda folder: (folder / "manifest.json").unlink(), "17: expected a manifest.json, found none"),
        (
            lambda folder: (folder / "manifest.json").write_text("{"),
            "17/manifest.json is no manifest: Expecting property name enclosed in double quotes",
        ),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "17/manifest.json is no manifest: pipeline: "),
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
            "17: expected files and folders, received '\\udcff': its name is no UTF-8",
        ),
    ],
)
def test_what_differs_is_named(folder: Path, change: Callable[[Path], object], told: str) -> None:
    version.write(folder, FACTS)
    change(folder)
    assert refusal(folder).startswith(told)


def test_a_version_under_another_number_is_refused(folder: Path) -> None:
    version.write(folder, FACTS, b"key")
    folder.rename(folder.with_name("99"))
    assert refusal(folder.with_name("99"), b"key").endswith("expected version 99, received the manifest of 17")


def test_a_link_in_place_of_the_manifest_is_refused(folder: Path, tmp_path: Path) -> None:
    version.write(folder, FACTS)
    (folder / "manifest.json").rename(tmp_path / "elsewhere")
    (folder / "manifest.json").symlink_to(tmp_path / "elsewhere")
    assert refusal(folder).startswith("17/manifest.json cannot be read")


def test_nothing_but_files_is_pushed(folder: Path) -> None:
    (folder / "assets" / "link").symlink_to("empty")
    with pytest.raises(InputError, match="assets/link"):
        version.write(folder, FACTS)


@pytest.mark.parametrize(
    ("environment", "key"), [({}, None), ({"KEY": "x", "OTHER": "y"}, b"x"), ({"OTHER": ""}, None)]
)
def test_the_key_comes_from_the_environment(environment: dict[str, str], key: bytes | None) -> None:
    assert version.signing_key(environment, "KEY") == key


def test_an_empty_key_is_no_key_and_is_told() -> None:
    with pytest.raises(InputError, match="KEY is set, and empty"):
        version.signing_key({"KEY": ""}, "KEY")


@pytest.mark.parametrize(("name", "expected"), [("17", True), ("0", True), (".17", False), ("1a", False), ("٣", False)])
def test_versions_are_what_a_model_server_takes_for_one(name: str, expected: bool) -> None:
    assert version.is_version(name) is expected


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1).filter(
    lambda name: name not in (".", "..", version.NAME) and len(name.encode()) < 200
)
TREES = st.dictionaries(NAMES, st.binary(max_size=64), min_size=1, max_size=4)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Gives an empty folder for each example."""
    numbers = iter(range(1 << 30))
    return lambda: tmp_path / f"{next(numbers)}" / "17"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES, key=st.none() | st.binary(min_size=1, max_size=8), data=st.data())
def test_any_change_is_caught(
    fresh: Callable[[], Path], tree: dict[str, bytes], key: bytes | None, data: st.DataObject
) -> None:
    folder = write(fresh(), {f"deep/{name}" if len(name) % 2 else name: tree[name] for name in tree})
    version.write(folder, FACTS, key)
    version.verify(folder, key)
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
        version.verify(folder, key)
