"""Gathers all that a run's report tells, from metadata, the run's own record, and the files that its nodes have made.

Each part stands alone: what was not recorded, or cannot be read, is left out with the reason, and the rest is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components import version
from components.errors import PipelineError
from components.evaluator.plots import Plots
from components.features import names
from components.features.config import FeaturesConfig
from pipeline.metadata import data, evaluation, gather, lineage, story
from pipeline.metadata.data import Column, ColumnChange
from pipeline.metadata.facts import Facts
from pipeline.metadata.lineage import Lineage
from pipeline.metadata.store import Artifact, Run, Store
from pipeline.report import curves
from pipeline.report.curves import Point

T = TypeVar("T")

_EARLIER = 20
"""How many runs back statistics to hold this run's against are looked for."""
_VOCABULARY_BYTES = 64 << 20
"""The entries of a larger file are not counted."""
_NOT_OPTIONS = ("op", "columns")


@dataclass(frozen=True)
class Anomaly:
    """Something in the data that does not fit the schema.

    Attributes:
      split: in which it was found.
      column: with it; empty for the data as a whole.
      what: in short.
      detail: in full.
      error: whether it counts as an error, rather than a warning.
    """

    split: str
    column: str
    what: str
    detail: str
    error: bool


@dataclass(frozen=True)
class Feature:
    """What becomes of a column.

    Attributes:
      columns: the raw columns.
      op: the operation.
      options: its options that were given, or have a default.
      name: of the transformed feature; those of `date_parts`, in words.
      entries: of its vocabulary; None where it has none, or a size was not found.
    """

    columns: tuple[str, ...]
    op: str
    options: dict[str, Any]
    name: str
    entries: int | None


@dataclass(frozen=True)
class Before:
    """The data of the run before.

    Attributes:
      run: its id.
      same: whether it read the very same rows.
      split: that was held against it.
      changes: of each column, the largest first.
    """

    run: str
    same: bool
    split: str
    changes: list[ColumnChange]


@dataclass
class Content:
    """All that a report tells.

    Attributes:
      told: the run, node by node, as `story.of_run` has it.
      facts: what came out of it.
      upstream: node → the nodes it waits for.
      config: that the run was made with; None where it was not written down.
      columns: split → name → column.
      before: how the data differs from the run before.
      anomalies: what does not fit the schema.
      judged: splits in which anomalies were looked for.
      features: what each operation of the config does.
      vocabularies: name → entries, of those that belong to no feature.
      curves: name → kind → points.
      plots: of the evaluation, over the whole eval split.
      classes: of a multiclass task, by their number; empty where they are not known.
      manifest: of the pushed version.
      lineage: of the pushed version, or else of the model.
      environment: what → its version.
      missing: part → why it is left out.
    """

    told: dict[str, Any]
    facts: Facts = field(default_factory=Facts)
    upstream: dict[str, tuple[str, ...]] = field(default_factory=dict)
    config: Any = None
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    before: Before | None = None
    anomalies: list[Anomaly] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    vocabularies: dict[str, int | None] = field(default_factory=dict)
    curves: dict[str, dict[str, list[Point]]] = field(default_factory=dict)
    plots: Plots | None = None
    classes: list[str] = field(default_factory=list)
    manifest: version.Manifest | None = None
    lineage: Lineage | None = None
    environment: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def of_run(store: Store, logs: Path, run: Run) -> Content:
    """The content of a run's report.

    Args:
      store: with the run.
      logs: the folder with a folder per run.
      run: the run.

    Raises:
      MachineError: the store is damaged, or stays locked.
    """
    found = Content(story.of_run(store, logs, run))
    missing = found.missing
    made = _Made(store, run.name)
    found.facts = _part(missing, "facts", lambda: gather.facts(store, run.name), Facts())
    found.upstream = story.upstream(found.told["nodes"])
    found.config = _part(missing, "config", lambda: _config(store, run.name), None)
    found.columns = _part(missing, "columns", lambda: _columns(store, run.name), {})
    found.before = _part(missing, "before", lambda: _before(store, run, found.columns), None)
    none: tuple[list[str], list[Anomaly]] = ([], [])
    found.judged, found.anomalies = _part(missing, "anomalies", lambda: _anomalies(made), none)
    vocabularies: dict[str, int | None] = _part(missing, "vocabularies", lambda: _vocabularies(made), {})
    found.features = _part(missing, "features", lambda: _features(found.config, vocabularies), [])
    used = {each.name for each in found.features}
    found.vocabularies = {name: entries for name, entries in vocabularies.items() if name not in used}
    found.curves = _part(missing, "curves", lambda: _curves(made), {})
    found.plots = _part(missing, "plots", lambda: _plots(made), None)
    if found.plots and found.plots.task == "multiclass":
        found.classes = _part(missing, "classes", lambda: _classes(made), [])
    found.manifest = _part(missing, "pushed", lambda: _manifest(found.facts), None)
    found.lineage = _part(missing, "lineage", lambda: _lineage(store, made), None)
    found.environment = _environment(made, found.manifest)
    return found


class _Made:
    """The artifacts of a run, asked for once each."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._known: dict[str, list[Artifact]] = {}

    def last(self, type_name: str) -> Artifact | None:
        several = self.all(type_name)
        return several[-1] if several else None

    def all(self, type_name: str) -> list[Artifact]:
        if type_name not in self._known:
            self._known[type_name] = self._store.artifacts(self._run, type_name)
        return self._known[type_name]


class _AbsentError(Exception):
    """Something was not recorded; its text says what."""


def _part(missing: dict[str, str], name: str, read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except _AbsentError as absent:
        missing[name] = str(absent)
    except PipelineError as error:
        missing[name] = error.headline
    except Exception as error:
        # Files may be gone, torn, or anybody's: whatever is wrong with one, the rest of the report is worth having.
        missing[name] = f"cannot be read: {type(error).__name__}: {error}"
    return otherwise


def _config(store: Store, run: str) -> Any:
    config = store.config(run)
    if config is None:
        raise _AbsentError("the run has written down no config")
    return config


def _columns(store: Store, run: str) -> dict[str, dict[str, Column]]:
    statistics = data.statistics(store, run)
    if statistics is None:
        raise _AbsentError("the run has no statistics: no StatisticsGen ended well")
    splits = sorted(statistics.splits, key=lambda split: (split != "train", split))
    return {split: data.columns(store, run, split) for split in splits}


def _before(store: Store, run: Run, now: dict[str, dict[str, Column]]) -> Before | None:
    if not now:
        return None
    split = next(iter(now))
    mine = data.statistics(store, run.name)
    for earlier in store.runs(run.pipeline, _EARLIER, before=run):
        theirs = data.statistics(store, earlier.name)
        if theirs is None or split not in theirs.splits:
            continue
        if mine is not None and theirs.id == mine.id:
            return Before(earlier.name, True, split, [])
        return Before(earlier.name, False, split, data.changes(data.columns(store, earlier.name, split), now[split]))
    raise _AbsentError("no earlier run of the pipeline has statistics to compare with")


def _anomalies(made: _Made) -> tuple[list[str], list[Anomaly]]:
    # A stock Transform looks at its own rows as well, of no split by itself.
    artifact = next((each for each in reversed(made.all("ExampleAnomalies")) if each.splits), None)
    if artifact is None:
        raise _AbsentError("the run has no anomalies: no ExampleValidator ended well")
    found = []
    for split in artifact.splits:
        content = (Path(artifact.uri) / f"Split-{split}" / "SchemaDiff.pb").read_bytes()
        told = anomalies_pb2.Anomalies.FromString(content)
        if told.HasField("dataset_anomaly_info"):
            found.append(_anomaly(split, "", told.dataset_anomaly_info))
        found += [_anomaly(split, name, one) for name, one in sorted(told.anomaly_info.items())]
    return artifact.splits, found


def _anomaly(split: str, column: str, told: anomalies_pb2.AnomalyInfo) -> Anomaly:
    is_error = told.severity == anomalies_pb2.AnomalyInfo.ERROR
    return Anomaly(split, column, told.short_description, told.description, is_error)


def _vocabularies(made: _Made) -> dict[str, int | None]:
    return {name: _entries(file) for name, file in _vocabulary_files(made).items()}


def _vocabulary_files(made: _Made) -> dict[str, Path]:
    graph = made.last("TransformGraph")
    if graph is None:
        raise _AbsentError("the run has no transform graph: no Transform ended well")
    folder = Path(graph.uri)
    files = json.loads((folder / "transformed_metadata" / "asset_map").read_text(encoding="utf-8"))
    return {str(name): folder / "transform_fn" / "assets" / Path(file).name for name, file in files.items()}


def _entries(file: Path) -> int | None:
    """A line each; a file in another format, or a very large one, is not counted."""
    if file.suffix == ".gz" or not file.exists() or file.stat().st_size > _VOCABULARY_BYTES:
        return None
    with file.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def _features(config: Any, vocabularies: dict[str, int | None]) -> list[Feature]:
    if config is None:
        raise _AbsentError("the run has written down no config, which would say what becomes of each column")
    section = FeaturesConfig.model_validate(config["features"])
    if section.preprocessing_fn is not None:
        raise _AbsentError(f"a preprocessing_fn of its own makes them: {config['features']['preprocessing_fn']}")
    return [
        Feature(
            each.columns,
            "cross" if each.key[0] == "crosses" else str(each.key[-1]),
            {
                name: value
                for name, value in each.op.model_dump(mode="json").items()
                if name not in _NOT_OPTIONS and value not in (None, [], {})
            },
            each.name,
            vocabularies.get(each.name),
        )
        for each in section.declared
    ]


def _curves(made: _Made) -> dict[str, dict[str, list[Point]]]:
    artifact = made.last("ModelRun")
    if artifact is None:
        raise _AbsentError("the run has no curves: no Trainer ended well")
    found = curves.read(Path(artifact.uri))
    if not found:
        raise _AbsentError("the Trainer has written no curves for TensorBoard")
    return found


def _plots(made: _Made) -> Plots:
    artifact = made.last("ModelEvaluation")
    found = evaluation.drawn(artifact.uri) if artifact else None
    if found is None:
        raise _AbsentError("what curves are drawn from was not written down")
    return found


def _classes(made: _Made) -> list[str]:
    file = _vocabulary_files(made).get(names.LABEL_CLASSES)
    if file is None or _entries(file) is None:
        return []
    # Nothing but a newline ends a class: others of Unicode's line ends may be in a name.
    return file.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")


def _manifest(facts: Facts) -> version.Manifest:
    if facts.pushed is None:
        raise _AbsentError("nothing was pushed")
    file = Path(facts.pushed) / version.NAME
    if not file.exists():
        raise _AbsentError(
            "the pushed version has no manifest here: it is no longer there, lies elsewhere, or is not ours"
        )
    return version.Manifest.model_validate_json(file.read_bytes())


def _lineage(store: Store, made: _Made) -> Lineage:
    root = made.last("PushedModel") or made.last("Model")
    if root is None:
        raise _AbsentError("the run has made no model")
    return lineage.trace(store, root.id)


def _environment(made: _Made, manifest: version.Manifest | None) -> dict[str, str]:
    kinds = ("Model", "Examples", "ExampleStatistics", "Schema")
    told = {
        str(each.properties["tfx_version"])
        for kind in kinds
        for each in made.all(kind)
        if "tfx_version" in each.properties
    }
    found = {"TFX": ", ".join(sorted(told))} if told else {}
    return found | ({"TFX": manifest.tfx, "TensorFlow": manifest.tensorflow} if manifest else {})
