"""Finds the model, training rows and evaluation of pushed versions that may have answered requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from components.base.errors import InputError
from components.monitor import monitoring
from components.monitor.monitoring import SPLIT, Version
from pipeline.core.metadata.store import Store


class Versions(Mapping[int, Version]):
    """A mapping from version numbers to models, training rows and evaluations.

    A version is looked up and verified only when it is accessed, because most versions have not answered any request.

    Args:
      store: The store that holds the runs.
      runs: The run that pushed a version and the folder of its model, by version.
      verify: Function that checks the files of a version before its model is used. It raises an InputError if a file
        was changed.
    """

    def __init__(self, store: Store, runs: Mapping[int, tuple[str, str]], verify: Callable[[int], object]) -> None:
        self._store, self._runs, self._verify = store, runs, verify

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._runs)

    def __getitem__(self, number: int) -> Version:
        """Verify a version and return its model, training rows and evaluation.

        Raises:
          KeyError: There is no such version.
          InputError: The version differs from its manifest, or the examples of its run were deleted.
        """
        run, folder = self._runs[number]
        self._verify(number)
        artifacts = self._store.artifacts(run)
        examples = next((artifact for artifact in artifacts if f"rows_{SPLIT}" in artifact.properties), None)
        files = () if examples is None else monitoring.list_example_files(examples.uri)
        if not files:
            raise InputError(
                f"run {run}: expected the run's examples, which requests are compared with, received none",
                "keep the artifacts of runs whose versions serve, as `runner.py store gc` does",
            )
        evaluation = next((artifact for artifact in reversed(artifacts) if artifact.type == "ModelEvaluation"), None)
        return Version(folder, files, None if evaluation is None else evaluation.uri)
