"""Registries of objects that a config or the command line can name. Installed packages can add entries.

A package adds an entry by an entry point, for example in its `pyproject.toml`:

    [project.entry-points."tfx_pipeline.metrics"]
    bias = "my_package.metrics:BIAS"

`bias` can then be used like a built-in name. Entry points are read from the metadata of the installed packages, once
per process, and only when a name is not built in. The module of an entry is imported when the entry is first used.
Therefore an add-on that is not used does not take time and cannot cause errors.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any, Generic, TypeVar, cast

from components.base.errors import InputError, first_line

EntryT = TypeVar("EntryT")


class Registry(Mapping[str, EntryT], Generic[EntryT]):
    """A mapping from names to entries, with the built-in entries first, then the entries of installed packages.

    Args:
      kind: Name of the entry point group without the prefix `tfx_pipeline.`, such as `metrics`.
      built_in: Built-in entries by name, or their import paths as `module:name`. Packages cannot replace them.
      expected: Description of a valid entry for error messages, such as `a Metric`.
      is_valid: Function that returns whether an object is a valid entry.
    """

    def __init__(
        self, kind: str, built_in: Mapping[str, EntryT | str], expected: str, is_valid: Callable[[object], bool]
    ) -> None:
        self._kind, self._expected, self._is_valid = kind, expected, is_valid
        self.built_in = built_in
        self._loaded: dict[str, EntryT] = {}

    def __getitem__(self, name: str) -> EntryT:
        """Return an entry. It is imported when it is first used.

        Raises:
          KeyError: An entry with this name does not exist.
          InputError: The package that adds the entry cannot be loaded, or does not contain a valid entry.
        """
        if name not in self._loaded:
            entry = self.built_in[name] if name in self.built_in else self._load(self.added[name])
            self._loaded[name] = import_object(entry) if isinstance(entry, str) else entry
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from self.added

    def __len__(self) -> int:
        return len(self.built_in) + len(self.added)

    def __contains__(self, name: object) -> bool:
        """Return whether an entry with this name exists, without importing it."""
        return name in self.built_in or name in self.added

    @property
    def added(self) -> Mapping[str, EntryPoint]:
        """The entry points of the entries that installed packages add, by name.

        Raises:
          InputError: A package adds a name that is built in or that another package also adds.
        """
        return _find_added(self._kind, frozenset(self.built_in))

    def load_added(self) -> tuple[dict[str, EntryT], list[InputError]]:
        """Import the entries that packages add; return name → entry, and the errors of packages that are damaged."""
        entries: dict[str, EntryT] = {}
        errors: list[InputError] = []
        for name in self.added:
            try:
                entries[name] = self[name]
            except InputError as error:
                errors.append(error)
        return entries, errors

    def list_modules(self, name: str) -> tuple[str, ...]:
        """Return the module of an entry that a package adds, for digests of code. Empty if the entry is built in."""
        return () if name in self.built_in or name not in self.added else (self.added[name].module,)

    def _load(self, point: EntryPoint) -> EntryT:
        where = f"{self._kind}.{point.name}, which {_describe(point)} adds"
        remedy = f"repair the package, or uninstall it: pip uninstall {point.dist.name if point.dist else point.name}"
        try:
            entry = point.load()
        # Catch SystemExit as well, because a script without a `__main__` guard may call sys.exit when it is imported.
        except (Exception, SystemExit) as error:
            received = f"received {type(error).__name__}: {first_line(error)}"
            raise InputError(f"{where}: expected {self._expected} at {point.value}, {received}", remedy) from error
        if not self._is_valid(entry):
            received = f"a {type(entry).__name__}"
            raise InputError(f"{where}: expected {self._expected} at {point.value}, received {received}", remedy)
        return cast(EntryT, entry)


def describe_origin(registry: Registry[EntryT], name: str) -> str:
    """Return the package that adds an entry, such as `my-package 1.0`. Empty if the entry is built in."""
    return "" if name in registry.built_in else _describe(registry.added[name])


def import_object(path: str) -> Any:
    """Import an object by its path of the form `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _describe(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


@functools.cache
def _read_entry_points() -> tuple[EntryPoint, ...]:
    """Return the entry points of this project in all installed packages.

    `importlib.metadata.entry_points` takes three times as long, because it parses the entry points of all packages, and
    reads the files again for each group.
    """
    packages: dict[str, Distribution] = {}
    for package in distributions():
        if "[tfx_pipeline." in (package.read_text("entry_points.txt") or ""):
            # The first of several folders in sys.path counts, as it does for imports.
            packages.setdefault(package.metadata["Name"], package)
    return tuple(point for package in packages.values() for point in package.entry_points)


@functools.cache
def _find_added(kind: str, built_in: frozenset[str]) -> Mapping[str, EntryPoint]:
    added: dict[str, EntryPoint] = {}
    for point in _read_entry_points():
        if point.group != f"tfx_pipeline.{kind}":
            continue
        if point.name in built_in or point.name in added:
            owner = "this project" if point.name in built_in else _describe(added[point.name])
            raise InputError(
                f"{kind}.{point.name}: expected a name that is not taken, received one that both {owner} and "
                f"{_describe(point)} have",
                f"uninstall {point.dist.name if point.dist else point.value}, or change the name in its entry points",
            )
        added[point.name] = point
    return added
