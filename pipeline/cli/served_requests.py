"""Monitors the requests to the pushed versions of a pipeline, for the verbs `monitor` and `due`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from components.base.errors import InputError
from components.monitor import monitoring
from components.monitor.monitoring import SPLIT, Version
from components.monitor.plan import make_plan
from components.monitor.result import Monitoring
from pipeline.authoring.config import Config
from pipeline.authoring.plans import make_model_plans
from pipeline.cli import options
from pipeline.core.metadata.store import Store
from pipeline.registry import versions


def monitor(config: Config) -> Monitoring:
    """Monitor the newest requests to the pushed versions of a config's pipeline.

    Raises:
      InputError: The config does not name a request log, or the log does not contain a request to a pushed version; or
        a version differs from its manifest, or its training rows do not exist any more.
    """
    plan = make_plan(config, make_model_plans(config))
    if plan is None:
        raise InputError("expected a section monitor, or --requests, received none", "name the request log")
    push_folder = options.get_push_folder(config)
    # If the manifest of a version is damaged, its run is unknown. Servers refuse such a version.
    runs = {
        entry.version: (entry.run, str(push_folder.find(entry.version)))
        for entry in versions.list_versions(push_folder)
        if entry.run
    }
    served = Versions(options.open_config_store(config).store, runs, push_folder.verify)
    result = monitoring.monitor(served, plan)
    if not result.judgements:
        raise InputError(
            f"expected requests to a version of {push_folder.path} in the log, received none",
            "name the log of the server that serves this push folder",
        )
    return result


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
