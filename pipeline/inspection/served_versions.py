"""The pushed versions that may have answered requests, with their training rows and evaluation, from ML Metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from components.errors import InputError
from components.monitor import monitoring
from components.monitor.monitoring import SPLIT, Version
from pipeline.core.metadata.store import Store


class Versions(Mapping[int, Version]):
    """Version → its model, training rows and evaluation, which are looked up when it has answered.

    Args:
      store: with the runs.
      runs: version → the run that has pushed it, and the folder of its model.
      verify: Checks the files of a version before its model is used; raises an InputError if one differs.
    """

    def __init__(self, store: Store, runs: Mapping[int, tuple[str, str]], verify: Callable[[int], object]) -> None:
        self._store, self._runs, self._verify = store, runs, verify

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._runs)

    def __getitem__(self, number: int) -> Version:
        """Looks up a version.

        Raises:
          KeyError: there is no such version.
          InputError: the version differs from its manifest, or the examples of its run are not there any more.
        """
        run, folder = self._runs[number]
        self._verify(number)
        artifacts = self._store.artifacts(run)
        examples = next((each for each in artifacts if f"rows_{SPLIT}" in each.properties), None)
        files = () if examples is None else monitoring.list_example_files(examples.uri)
        if not files:
            raise InputError(
                f"run {run}: expected its examples, to compare requests with them, received none",
                "keep the artifacts of runs whose versions serve (`runner.py gc` does)",
            )
        evaluation = next((each for each in reversed(artifacts) if each.type == "ModelEvaluation"), None)
        return Version(folder, files, None if evaluation is None else evaluation.uri)
