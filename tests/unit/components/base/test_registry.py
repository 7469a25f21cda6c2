"""A registry finds built-in entries without package metadata, and rejects names that are defined twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from components.base import registry
from components.base.errors import InputError
from components.base.registry import Registry, describe_origin


@pytest.fixture(autouse=True)
def _forget_packages() -> Iterator[None]:
    for cached in (registry._find_added, registry._read_entry_points):
        cached.cache_clear()
    yield
    for cached in (registry._find_added, registry._read_entry_points):
        cached.cache_clear()


def install(folder: Path, name: str, entries: str) -> None:
    """Write the metadata of a package with entry points of the kind `readers`."""
    metadata = folder / f"{name}-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(f"[tfx_pipeline.readers]\n{entries}\n")


def make_registry() -> Registry[object]:
    return Registry("readers", {"dumps": "json:dumps", "three": 3}, "a function or a number", lambda entry: True)


def test_built_in_entries_do_not_need_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "distributions", None)
    readers = make_registry()
    assert readers["dumps"] is json.dumps
    assert readers["three"] == 3
    assert "dumps" in readers
    assert readers.list_modules("dumps") == ()


def test_entry_of_a_package_is_imported_when_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counting_module.py").write_text("VALUE = 7\n")
    install(tmp_path, "counting", "seven = counting_module:VALUE")
    readers = make_registry()
    assert list(readers) == ["dumps", "three", "seven"]
    assert len(readers) == 3
    assert "seven" in readers
    assert describe_origin(readers, "seven") == "counting 1.5"
    assert readers.list_modules("seven") == ("counting_module",)
    assert "counting_module" not in sys.modules
    assert readers["seven"] == 7
    with pytest.raises(KeyError):
        readers["eight"]


@pytest.mark.parametrize("owner", ["this project", "first 1.5"])
def test_name_that_is_defined_twice_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = "dumps" if owner == "this project" else "load"
    if owner != "this project":
        install(tmp_path, "first", f"{name} = json:load")
    install(tmp_path, "second", f"{name} = json:loads")
    with pytest.raises(InputError, match=f"readers.{name}: expected a name that is not taken") as error:
        list(make_registry())
    assert "second 1.5" in error.value.headline
    assert owner in error.value.headline


def test_metadata_of_the_packages_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(registry, "distributions", lambda: reads.append(1) or distributions())
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "counting", "seven = counting_module:VALUE\n[tfx_pipeline.writers]\nten = writing:TEN")
    # A second copy of the package further down in sys.path is not used, as in imports.
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(second)])
    install(second, "counting", "eight = counting_module:VALUE")
    assert list(make_registry()) == ["dumps", "three", "seven"]
    assert list(Registry("writers", {}, "a number", lambda entry: True)) == ["ten"]
    assert len(reads) == 1


def test_entry_of_another_type_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "wrong", "pi = math:pi")
    readers: Registry[object] = Registry("readers", {}, "a function", callable)
    assert isinstance(readers.added["pi"], EntryPoint)
    with pytest.raises(InputError, match=r"which wrong 1\.5 adds: expected a function at math:pi, received a float"):
        readers["pi"]
