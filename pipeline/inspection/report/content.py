"""Collects the data for a run's report from ML Metadata, the run's record, and the files that its nodes wrote.

The parts are independent of each other. If a part was not recorded or cannot be read, the report shows the reason
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components.base.errors import PipelineError
from components.data import file_io
from components.evaluator.dependence import Dependence
from components.evaluator.importance import Importance
from components.evaluator.mistakes import Mistake
from components.evaluator.plot_data import Plots
from components.features import feature_names, graph_files
from components.features.config import FeaturesConfig
from components.pusher.open_store import open_store
from components.results import version_manifest
from pipeline.core.metadata.store import Artifact, Run, Store
from pipeline.core.records import RunSummary
from pipeline.core.text import describe_approval
from pipeline.inspection import column_statistics, comparison, lineage, run_history, run_summary, training_curves
from pipeline.inspection.column_statistics import Column, ColumnChange
from pipeline.inspection.lineage import Lineage
from pipeline.inspection.training_curves import Point

T = TypeVar("T")

_EARLIER_RUNS = 20
"""Number of earlier runs in which another model to compare with is searched for."""
_VOCABULARY_BYTES = 64 << 20
"""Maximum size of a vocabulary file whose entries are counted."""
_NOT_OPTIONS = ("op", "columns")
"""Fields of an operation that the report shows in table columns of their own, not among the options."""


@dataclass(frozen=True)
class Anomaly:
    """An anomaly: a deviation of the data from the schema.

    Attributes:
      split: Split that contains the anomaly.
      column: Column that contains the anomaly. Empty for an anomaly of the whole data set.
      summary: Short description.
      detail: Full description.
      error: Whether the severity is an error. Otherwise it is a warning.
    """

    split: str
    column: str
    summary: str
    detail: str
    error: bool


@dataclass(frozen=True)
class Feature:
    """A transformed feature.

    Attributes:
      columns: Raw columns that the feature is computed from.
      op: Name of the operation.
      options: Options of the operation, including defaults. Empty options are left out.
      name: Name of the transformed feature. For `date_parts`, a description of its several features.
      entries: Number of entries in the feature's vocabulary. None if it does not use a vocabulary or the number is
        unknown.
    """

    columns: tuple[str, ...]
    op: str
    options: dict[str, Any]
    name: str
    entries: int | None


@dataclass(frozen=True)
class TrainedBefore:
    """The newest earlier run with another model, and what this run changed.

    Attributes:
      run: ID of the earlier run.
      config: Pairs [before, now] of the fields of the config that differ. None if a config was not recorded.
      metrics: Metrics of the earlier run on its whole eval split.
    """

    run: str
    config: dict[str, list[Any]] | None
    metrics: dict[str, float]


@dataclass(frozen=True)
class DataChange:
    """The change of the data since the run that trained the model before.

    Attributes:
      run: ID of the earlier run.
      same: Whether both runs use the same statistics, because they were cached.
      split: Name of the split that was compared.
      changes: Changes of all columns, the largest first. Empty if the statistics are the same.
    """

    run: str
    same: bool
    split: str
    changes: list[ColumnChange]


@dataclass
class Content:
    """The content of a report.

    Attributes:
      run: Description of the run, node by node, as returned by `run_history.describe_run`.
      summary: Rows, metrics, verdict and pushed version.
      upstream: Nodes that a node depends on, by node.
      config: Config of the run. None if it was not recorded.
      columns: Column statistics by split, then by column name.
      trained_before: The newest earlier run with another model. None if there is none.
      before: Change of the data since that run.
      anomalies: Deviations from the schema.
      judged: Splits that were compared with the schema.
      features: Features that the config declares.
      vocabularies: Number of entries by name, for vocabularies that do not belong to a declared feature.
      curves: Points of the training curves by name, then by kind.
      plots: Data of the evaluation's charts for the whole eval split.
      importance: Importance of the columns, also by slice.
      dependence: Partial dependence of the prediction on the most important columns, and interactions.
      mistakes: Images that the model misclassifies with the highest confidence. None if they were not recorded.
      classes: Names of a multiclass task's classes, by class number. Empty if they are unknown.
      manifest: Manifest of the pushed version.
      lineage: Lineage of the pushed version or, if the run did not push, of the model.
      environment: Versions of libraries by name.
      missing: Reasons why parts are left out, by the name of the part.
    """

    run: dict[str, Any]
    summary: RunSummary = field(default_factory=RunSummary)
    upstream: dict[str, tuple[str, ...]] = field(default_factory=dict)
    config: Any = None
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    trained_before: TrainedBefore | None = None
    before: DataChange | None = None
    anomalies: list[Anomaly] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    vocabularies: dict[str, int | None] = field(default_factory=dict)
    curves: dict[str, dict[str, list[Point]]] = field(default_factory=dict)
    plots: Plots | None = None
    importance: Importance | None = None
    dependence: Dependence | None = None
    mistakes: list[Mistake] | None = None
    classes: list[str] = field(default_factory=list)
    manifest: version_manifest.Manifest | None = None
    lineage: Lineage | None = None
    environment: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def collect(store: Store, logs: Path, run: Run) -> Content:
    """Collect the content of a run's report.

    Args:
      store: The store that holds the run.
      logs: Folder with one subfolder per run.
      run: The run.

    Raises:
      MachineError: The store is damaged or stays locked.
    """
    content = Content(run_history.describe_run(store, logs, run))
    missing = content.missing
    outputs = _Outputs(store, run.name)
    content.summary = _read_part(missing, "summary", lambda: run_summary.summarize(store, run.name), RunSummary())
    content.upstream = run_history.find_upstream(content.run["nodes"])
    content.config = _read_part(missing, "config", lambda: _read_config(store, run.name), None)
    content.columns = _read_part(missing, "columns", lambda: _read_columns(store, run.name), {})
    content.trained_before = _read_part(
        missing, "before", lambda: _find_trained_before(store, logs, run, outputs), None
    )
    if content.trained_before and content.columns:
        earlier = content.trained_before.run
        content.before = _read_part(
            missing, "before", lambda: _compare_data(store, earlier, run, content.columns), None
        )
    no_anomalies: tuple[list[str], list[Anomaly]] = ([], [])
    content.judged, content.anomalies = _read_part(missing, "anomalies", lambda: _read_anomalies(outputs), no_anomalies)
    vocabularies: dict[str, int | None] = _read_part(
        missing, "vocabularies", lambda: _count_vocabulary_entries(outputs), {}
    )
    content.features = _read_part(missing, "features", lambda: _list_features(content.config, vocabularies), [])
    feature_vocabularies = {feature.name for feature in content.features}
    # Transform also writes counts of hash collisions and unparsed dates as vocabularies; they are shown elsewhere.
    content.vocabularies = {
        name: entries
        for name, entries in vocabularies.items()
        if name not in feature_vocabularies
        and not name.startswith((feature_names.COLLISIONS, feature_names.UNPARSED_DATES))
    }
    content.curves = _read_part(missing, "curves", lambda: _read_curves(outputs), {})
    content.plots = _read_part(missing, "plots", lambda: _read_plots(outputs), None)
    content.importance = _read_part(missing, "importance", lambda: _read_importance(outputs), None)
    content.dependence = _read_part(missing, "dependence", lambda: _read_dependence(outputs), None)
    content.mistakes = _read_part(missing, "mistakes", lambda: _read_mistakes(outputs), None)
    if content.plots and content.plots.task == "multiclass":
        content.classes = _read_part(missing, "classes", lambda: _read_classes(outputs), [])
    content.manifest = _read_part(missing, "pushed", lambda: _read_manifest(content.summary, run.name), None)
    content.lineage = _read_part(missing, "lineage", lambda: _trace_lineage(store, outputs), None)
    content.environment = _read_environment(outputs, content.manifest)
    return content


class _Outputs:
    """The output artifacts of a run by type. Each type is read from the store at most once."""

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
    """Raised if a part of the report was not recorded. The message is the reason that the report shows."""


def _read_part(missing: dict[str, str], name: str, read: Callable[[], T], default: T) -> T:
    """Read a part of the report.

    Args:
      missing: Receives the reason if the part cannot be read.
      name: Name of the part.
      read: Function that reads the part.
      default: Result if the part cannot be read.
    """
    try:
        return read()
    except _AbsentError as absent:
        missing[name] = str(absent)
    except PipelineError as error:
        missing[name] = error.headline
    except Exception as error:
        # A file may be missing, damaged or in another format. The other parts of the report are useful nevertheless.
        missing[name] = f"cannot be read: {type(error).__name__}: {error}"
    return default


def _read_config(store: Store, run: str) -> Any:
    config = store.config(run)
    if config is None:
        raise _AbsentError("the config of the run was not recorded")
    return config


def _read_columns(store: Store, run: str) -> dict[str, dict[str, Column]]:
    statistics = column_statistics.statistics(store, run)
    if statistics is None:
        raise _AbsentError("the run has no statistics: no StatisticsGen succeeded")
    splits = sorted(statistics.splits, key=lambda split: (split != "train", split))
    return {split: column_statistics.columns(store, run, split) for split in splits}


def _find_trained_before(store: Store, logs: Path, run: Run, outputs: _Outputs) -> TrainedBefore:
    """Return the newest earlier run with another model; runs that trained nothing new are passed over."""
    model = outputs.last("Model")
    for earlier in store.runs(run.pipeline, _EARLIER_RUNS, before=run):
        if any(model is None or other.id != model.id for other in store.artifacts(earlier.name, "Model")):
            metrics = comparison.read_summary(store, logs, earlier.name).metrics
            return TrainedBefore(earlier.name, comparison.compare_configs(store, earlier.name, run.name), metrics)
    raise _AbsentError("no earlier run of the pipeline has trained another model")


def _compare_data(store: Store, earlier: str, run: Run, now: dict[str, dict[str, Column]]) -> DataChange:
    """Compare the first split, which is the training split."""
    split = next(iter(now))
    statistics, before = column_statistics.statistics(store, run.name), column_statistics.statistics(store, earlier)
    if before is None or split not in before.splits:
        raise _AbsentError(f"run {earlier}, which trained the model before, has no statistics of {split}")
    if statistics is not None and before.id == statistics.id:
        return DataChange(earlier, True, split, [])
    changes = column_statistics.changes(column_statistics.columns(store, earlier, split), now[split])
    return DataChange(earlier, False, split, changes)


def _read_anomalies(outputs: _Outputs) -> tuple[list[str], list[Anomaly]]:
    """Return the splits that were compared with the schema, and the anomalies in them."""
    # A stock Transform also writes an ExampleAnomalies artifact, of the transformed rows and without splits.
    artifact = next((artifact for artifact in reversed(outputs.all("ExampleAnomalies")) if artifact.splits), None)
    if artifact is None:
        raise _AbsentError("the run has no anomalies: no ExampleValidator succeeded")
    anomalies = []
    for split in artifact.splits:
        file = file_io.join(artifact.uri, f"Split-{split}/SchemaDiff.pb")
        content = file_io.read(file)
        if content is None:
            raise _AbsentError(f"{file} does not exist")
        proto = anomalies_pb2.Anomalies.FromString(content)
        if proto.HasField("dataset_anomaly_info"):
            anomalies.append(_parse_anomaly(split, "", proto.dataset_anomaly_info))
        anomalies += [_parse_anomaly(split, name, info) for name, info in sorted(proto.anomaly_info.items())]
    return artifact.splits, anomalies


def _parse_anomaly(split: str, column: str, info: anomalies_pb2.AnomalyInfo) -> Anomaly:
    is_error = info.severity == anomalies_pb2.AnomalyInfo.ERROR
    return Anomaly(split, column, info.short_description, info.description, is_error)


def _count_vocabulary_entries(outputs: _Outputs) -> dict[str, int | None]:
    graph = outputs.last("TransformGraph")
    if graph is None:
        raise _AbsentError("the run has no transform graph: no Transform succeeded")
    return {name: _count_lines(file) for name, file in graph_files.paths(graph.uri).items()}


def _count_lines(file: str) -> int | None:
    """Count the lines of a vocabulary file. Return None if the file is missing, compressed or very large."""
    [measured] = file_io.stats([file])
    if file.endswith(".gz") or measured is None or measured[0] > _VOCABULARY_BYTES:
        return None
    return graph_files.entries(file)


def _list_features(config: Any, vocabularies: dict[str, int | None]) -> list[Feature]:
    if config is None:
        raise _AbsentError("the config of the run, which declares the features, was not recorded")
    section = FeaturesConfig.model_validate(config["features"])
    if section.preprocessing_fn is not None:
        raise _AbsentError(f"the user's preprocessing_fn creates them: {config['features']['preprocessing_fn']}")
    return [
        Feature(
            columns=feature.columns,
            op="cross" if feature.key[0] == "crosses" else str(feature.key[-1]),
            options={
                name: value
                for name, value in feature.op.model_dump(mode="json").items()
                if name not in _NOT_OPTIONS and value not in (None, [], {})
            },
            name=feature.name,
            entries=vocabularies.get(feature.name),
        )
        for feature in section.declared
    ]


def _read_curves(outputs: _Outputs) -> dict[str, dict[str, list[Point]]]:
    artifact = outputs.last("ModelRun")
    if artifact is None:
        raise _AbsentError("the run has no curves: no Trainer succeeded")
    curves = training_curves.read(artifact.uri)
    if not curves:
        raise _AbsentError("the Trainer has written no curves for TensorBoard")
    return curves


def _read_plots(outputs: _Outputs) -> Plots:
    artifact = outputs.last("ModelEvaluation")
    plots = run_summary.read_plots(artifact.uri) if artifact else None
    if plots is None:
        raise _AbsentError("the data of the charts was not recorded")
    return plots


def _read_importance(outputs: _Outputs) -> Importance:
    artifact = outputs.last("ModelEvaluation")
    importance = run_summary.read_importance(artifact.uri) if artifact else None
    if importance is None or importance.unknown:
        raise _AbsentError(importance.unknown if importance and importance.unknown else "it was not recorded")
    return importance


def _read_dependence(outputs: _Outputs) -> Dependence:
    artifact = outputs.last("ModelEvaluation")
    dependence = run_summary.read_dependence(artifact.uri) if artifact else None
    if dependence is None or dependence.unknown:
        raise _AbsentError(dependence.unknown if dependence and dependence.unknown else "it was not recorded")
    return dependence


def _read_mistakes(outputs: _Outputs) -> list[Mistake] | None:
    artifact = outputs.last("ModelEvaluation")
    return run_summary.read_mistakes(artifact.uri) if artifact else None


def _read_classes(outputs: _Outputs) -> list[str]:
    graph = outputs.last("TransformGraph")
    return graph_files.read_label_classes(graph.uri) if graph else []


def _read_manifest(summary: RunSummary, run: str) -> version_manifest.Manifest:
    if summary.awaits_approval:
        raise _AbsentError(f"the model is not pushed yet; {describe_approval(run)}")
    if summary.pushed is None:
        raise _AbsentError("nothing was pushed")
    directory, _, number = summary.pushed.rstrip("/").rpartition("/")
    try:
        with open_store(directory).version(int(number)).open(version_manifest.NAME) as file:
            return version_manifest.Manifest.model_validate_json(file.read())
    except FileNotFoundError:
        raise _AbsentError(
            "the manifest of the pushed version is missing: the version was removed, is on another machine, or was "
            "pushed by stock TFX"
        ) from None


def _trace_lineage(store: Store, outputs: _Outputs) -> Lineage:
    root = outputs.last("PushedModel") or outputs.last("Model")
    if root is None:
        raise _AbsentError("the run did not produce a model")
    return lineage.trace(store, root.id)


def _read_environment(outputs: _Outputs, manifest: version_manifest.Manifest | None) -> dict[str, str]:
    types = ("Model", "Examples", "ExampleStatistics", "Schema")
    versions = {
        str(artifact.properties["tfx_version"])
        for type_name in types
        for artifact in outputs.all(type_name)
        if "tfx_version" in artifact.properties
    }
    environment = {"TFX": ", ".join(sorted(versions))} if versions else {}
    return environment | ({"TFX": manifest.tfx, "TensorFlow": manifest.tensorflow} if manifest else {})
