"""Collects the data for a run's report from ML Metadata, the run's record, and the files that its nodes wrote.

Each part is independent: a part that was not recorded or cannot be read is left out, and the report has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components import version_manifest
from components.errors import PipelineError
from components.evaluator.importance import Importance
from components.evaluator.mistakes import Mistake
from components.evaluator.plot_data import Plots
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.monitor.result import Monitoring
from pipeline.core.metadata.store import Artifact, Run, Store
from pipeline.core.records import RunSummary
from pipeline.inspection import column_statistics, lineage, run_history, run_summary
from pipeline.inspection.column_statistics import Column, ColumnChange
from pipeline.inspection.lineage import Lineage
from pipeline.inspection.report import training_curves
from pipeline.inspection.report.training_curves import Point

T = TypeVar("T")

_EARLIER = 20
"""Number of earlier runs among which one with statistics is searched for."""
_VOCABULARY_BYTES = 64 << 20
"""The entries of a larger file are not counted."""
_NOT_OPTIONS = ("op", "columns")


@dataclass(frozen=True)
class Anomaly:
    """An anomaly: a deviation of the data from the schema.

    Attributes:
      split: with the anomaly.
      column: with the anomaly; empty for an anomaly of the data set.
      what: short description.
      detail: full description.
      error: whether its severity is an error; else a warning.
    """

    split: str
    column: str
    what: str
    detail: str
    error: bool


@dataclass(frozen=True)
class Feature:
    """A transformed feature.

    Attributes:
      columns: the raw columns.
      op: the operation.
      options: the operation's options that are set, or have a default.
      name: of the transformed feature; a description, for the features of `date_parts`.
      entries: number of entries of its vocabulary; None if it has no vocabulary, or a size was not found.
    """

    columns: tuple[str, ...]
    op: str
    options: dict[str, Any]
    name: str
    entries: int | None


@dataclass(frozen=True)
class DataChange:
    """The change of the data since the previous run.

    Attributes:
      run: id of the previous run.
      same: whether both runs use the same statistics artifact, from the cache.
      split: that was compared.
      changes: of each column, the largest first.
    """

    run: str
    same: bool
    split: str
    changes: list[ColumnChange]


@dataclass
class Content:
    """The content of a report.

    Attributes:
      run: the run, node by node, as returned by `run_history.describe_run`.
      summary: rows, metrics, verdict and pushed version.
      upstream: node → the nodes it depends on.
      config: of the run; None where it was not recorded.
      columns: split → name → column statistics.
      before: the change of the data since the previous run.
      anomalies: deviations from the schema.
      judged: splits that were compared with the schema.
      features: each operation of the config.
      vocabularies: name → number of entries, of vocabularies that belong to no feature.
      curves: name → kind → points.
      plots: data of the evaluation's charts, of the whole eval split.
      importance: of the columns, with slices.
      mistakes: the images that the model is wrong about and most sure of; None if none were looked for.
      classes: names of a multiclass task's classes, by number; empty where they are unknown.
      manifest: of the pushed version.
      monitoring: what the served requests show; None without the node Monitor.
      lineage: of the pushed version, or else of the model.
      environment: library → its version.
      missing: part → why it is left out.
    """

    run: dict[str, Any]
    summary: RunSummary = field(default_factory=RunSummary)
    upstream: dict[str, tuple[str, ...]] = field(default_factory=dict)
    config: Any = None
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    before: DataChange | None = None
    anomalies: list[Anomaly] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    vocabularies: dict[str, int | None] = field(default_factory=dict)
    curves: dict[str, dict[str, list[Point]]] = field(default_factory=dict)
    plots: Plots | None = None
    importance: Importance | None = None
    mistakes: list[Mistake] | None = None
    classes: list[str] = field(default_factory=list)
    manifest: version_manifest.Manifest | None = None
    monitoring: Monitoring | None = None
    lineage: Lineage | None = None
    environment: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def collect(store: Store, logs: Path, run: Run) -> Content:
    """Collects the content of a run's report.

    Args:
      store: with the run.
      logs: the folder with a folder per run.
      run: the run.

    Raises:
      MachineError: the store is damaged, or stays locked.
    """
    content = Content(run_history.describe_run(store, logs, run))
    missing = content.missing
    outputs = _Outputs(store, run.name)
    content.summary = _part(missing, "summary", lambda: run_summary.summarize(store, run.name), RunSummary())
    content.upstream = run_history.upstream(content.run["nodes"])
    content.config = _part(missing, "config", lambda: _config(store, run.name), None)
    content.columns = _part(missing, "columns", lambda: _columns(store, run.name), {})
    content.before = _part(missing, "before", lambda: _data_change(store, run, content.columns), None)
    none: tuple[list[str], list[Anomaly]] = ([], [])
    content.judged, content.anomalies = _part(missing, "anomalies", lambda: _anomalies(outputs), none)
    vocabularies: dict[str, int | None] = _part(missing, "vocabularies", lambda: _vocabularies(outputs), {})
    content.features = _part(missing, "features", lambda: _features(content.config, vocabularies), [])
    used = {each.name for each in content.features}
    content.vocabularies = {
        name: entries
        for name, entries in vocabularies.items()
        if name not in used and not name.startswith((feature_names.COLLISIONS, feature_names.UNPARSED_DATES))
    }
    content.curves = _part(missing, "curves", lambda: _curves(outputs), {})
    content.plots = _part(missing, "plots", lambda: _plots(outputs), None)
    content.importance = _part(missing, "importance", lambda: _importance(outputs), None)
    content.mistakes = _part(missing, "mistakes", lambda: _mistakes(outputs), None)
    if content.plots and content.plots.task == "multiclass":
        content.classes = _part(missing, "classes", lambda: _classes(outputs), [])
    content.manifest = _part(missing, "pushed", lambda: _manifest(content.summary), None)
    content.monitoring = _part(missing, "monitoring", lambda: run_summary.read_result(store, run.name, "Monitor"), None)
    content.lineage = _part(missing, "lineage", lambda: _lineage(store, outputs), None)
    content.environment = _environment(outputs, content.manifest)
    return content


class _Outputs:
    """The artifacts of a run by type, each type read once."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._cached: dict[str, list[Artifact]] = {}

    def last(self, type_name: str) -> Artifact | None:
        artifacts = self.all(type_name)
        return artifacts[-1] if artifacts else None

    def all(self, type_name: str) -> list[Artifact]:
        if type_name not in self._cached:
            self._cached[type_name] = self._store.artifacts(self._run, type_name)
        return self._cached[type_name]


class _AbsentError(Exception):
    """A part was not recorded; the text is the reason."""


def _part(missing: dict[str, str], name: str, read: Callable[[], T], default: T) -> T:
    try:
        return read()
    except _AbsentError as absent:
        missing[name] = str(absent)
    except PipelineError as error:
        missing[name] = error.headline
    except Exception as error:
        # A file may be missing, damaged, or in another format; the rest of the report is still useful.
        missing[name] = f"cannot be read: {type(error).__name__}: {error}"
    return default


def _config(store: Store, run: str) -> Any:
    config = store.config(run)
    if config is None:
        raise _AbsentError("the run has no recorded config")
    return config


def _columns(store: Store, run: str) -> dict[str, dict[str, Column]]:
    statistics = column_statistics.statistics(store, run)
    if statistics is None:
        raise _AbsentError("the run has no statistics: no StatisticsGen succeeded")
    splits = sorted(statistics.splits, key=lambda split: (split != "train", split))
    return {split: column_statistics.columns(store, run, split) for split in splits}


def _data_change(store: Store, run: Run, now: dict[str, dict[str, Column]]) -> DataChange | None:
    if not now:
        return None
    split = next(iter(now))
    statistics = column_statistics.statistics(store, run.name)
    for earlier in store.runs(run.pipeline, _EARLIER, before=run):
        before = column_statistics.statistics(store, earlier.name)
        if before is None or split not in before.splits:
            continue
        if statistics is not None and before.id == statistics.id:
            return DataChange(earlier.name, True, split, [])
        return DataChange(
            earlier.name,
            False,
            split,
            column_statistics.changes(column_statistics.columns(store, earlier.name, split), now[split]),
        )
    raise _AbsentError("no earlier run of the pipeline has statistics to compare with")


def _anomalies(outputs: _Outputs) -> tuple[list[str], list[Anomaly]]:
    # The anomalies of a stock Transform's rows have no splits.
    artifact = next((each for each in reversed(outputs.all("ExampleAnomalies")) if each.splits), None)
    if artifact is None:
        raise _AbsentError("the run has no anomalies: no ExampleValidator succeeded")
    anomalies = []
    for split in artifact.splits:
        content = (Path(artifact.uri) / f"Split-{split}" / "SchemaDiff.pb").read_bytes()
        proto = anomalies_pb2.Anomalies.FromString(content)
        if proto.HasField("dataset_anomaly_info"):
            anomalies.append(_anomaly(split, "", proto.dataset_anomaly_info))
        anomalies += [_anomaly(split, name, info) for name, info in sorted(proto.anomaly_info.items())]
    return artifact.splits, anomalies


def _anomaly(split: str, column: str, info: anomalies_pb2.AnomalyInfo) -> Anomaly:
    is_error = info.severity == anomalies_pb2.AnomalyInfo.ERROR
    return Anomaly(split, column, info.short_description, info.description, is_error)


def _vocabularies(outputs: _Outputs) -> dict[str, int | None]:
    return {name: _entries(file) for name, file in _vocabulary_files(outputs).items()}


def _vocabulary_files(outputs: _Outputs) -> dict[str, Path]:
    graph = outputs.last("TransformGraph")
    if graph is None:
        raise _AbsentError("the run has no transform graph: no Transform succeeded")
    folder = Path(graph.uri)
    files = json.loads((folder / "transformed_metadata" / "asset_map").read_text(encoding="utf-8"))
    return {str(name): folder / "transform_fn" / "assets" / Path(file).name for name, file in files.items()}


def _entries(file: Path) -> int | None:
    """Counts the lines of a vocabulary; None for a file in another format, or a very large one."""
    if file.suffix == ".gz" or not file.exists() or file.stat().st_size > _VOCABULARY_BYTES:
        return None
    with file.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def _features(config: Any, vocabularies: dict[str, int | None]) -> list[Feature]:
    if config is None:
        raise _AbsentError("the run has no recorded config, which defines the features")
    section = FeaturesConfig.model_validate(config["features"])
    if section.preprocessing_fn is not None:
        raise _AbsentError(f"the user's own preprocessing_fn makes them: {config['features']['preprocessing_fn']}")
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


def _curves(outputs: _Outputs) -> dict[str, dict[str, list[Point]]]:
    artifact = outputs.last("ModelRun")
    if artifact is None:
        raise _AbsentError("the run has no curves: no Trainer succeeded")
    curves = training_curves.read(Path(artifact.uri))
    if not curves:
        raise _AbsentError("the Trainer has written no curves for TensorBoard")
    return curves


def _plots(outputs: _Outputs) -> Plots:
    artifact = outputs.last("ModelEvaluation")
    plots = run_summary.read_plots(artifact.uri) if artifact else None
    if plots is None:
        raise _AbsentError("the data of the charts was not recorded")
    return plots


def _importance(outputs: _Outputs) -> Importance:
    artifact = outputs.last("ModelEvaluation")
    importance = run_summary.read_importance(artifact.uri) if artifact else None
    if importance is None or importance.unknown:
        raise _AbsentError(importance.unknown if importance and importance.unknown else "it was not recorded")
    return importance


def _mistakes(outputs: _Outputs) -> list[Mistake] | None:
    artifact = outputs.last("ModelEvaluation")
    return run_summary.read_mistakes(artifact.uri) if artifact else None


def _classes(outputs: _Outputs) -> list[str]:
    file = _vocabulary_files(outputs).get(feature_names.LABEL_CLASSES)
    if file is None or _entries(file) is None:
        return []
    # Only a newline ends a class: other line ends of Unicode may be part of a name.
    return file.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")


def _manifest(summary: RunSummary) -> version_manifest.Manifest:
    if summary.pushed is None:
        raise _AbsentError("nothing was pushed")
    file = Path(summary.pushed) / version_manifest.NAME
    if not file.exists():
        raise _AbsentError(
            "the pushed version has no manifest here: it was removed, is on another machine, or was pushed by stock TFX"
        )
    return version_manifest.Manifest.model_validate_json(file.read_bytes())


def _lineage(store: Store, outputs: _Outputs) -> Lineage:
    root = outputs.last("PushedModel") or outputs.last("Model")
    if root is None:
        raise _AbsentError("the run has made no model")
    return lineage.trace(store, root.id)


def _environment(outputs: _Outputs, manifest: version_manifest.Manifest | None) -> dict[str, str]:
    types = ("Model", "Examples", "ExampleStatistics", "Schema")
    versions = {
        str(each.properties["tfx_version"])
        for type_name in types
        for each in outputs.all(type_name)
        if "tfx_version" in each.properties
    }
    environment = {"TFX": ", ".join(sorted(versions))} if versions else {}
    return environment | ({"TFX": manifest.tfx, "TensorFlow": manifest.tensorflow} if manifest else {})
