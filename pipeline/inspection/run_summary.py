"""Summarizes a run from its artifacts: rows, training, metrics, verdict, serving check and pushed version.

Metrics can be read from this project's Evaluator and from TFX's Evaluator. Checks, warnings, confidence intervals and
the data of charts are recorded only by this project's Evaluator.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.base.node import NodeWithResult
from components.data import file_io, image_statistics
from components.data.coarse_numbers import CoarseNumbers, find_coarse_numbers
from components.data.near_duplicates import NearDuplicates
from components.evaluator import dependence, importance, mistakes, plot_data, verdict
from components.evaluator.dependence import Dependence
from components.evaluator.importance import Importance
from components.evaluator.mistakes import Mistake
from components.evaluator.plot_data import Plots
from components.evaluator.verdict import MissedClasses, SliceMetrics, Verdict
from components.features import graph_files
from components.features.hash_collisions import HashCollisions
from components.features.unparsed_dates import UnparsedDates
from components.pusher.candidate import APPROVAL, PENDING
from components.pusher.local_folder import local_copy
from components.results import device_memory, input_wait, task_load
from components.results.task_load import TaskLoad
from components.serving.check_result import FILE, ServingCheckResult
from components.tuner.trial_values import plain
from pipeline.core.metadata.store import Artifact, Store
from pipeline.core.nodes import NODES, NODES_WITH_RESULT
from pipeline.core.records import BLESSED, NOT_BLESSED, NOT_EVALUATED, QUARANTINED, RunSummary
from pipeline.inspection import column_statistics

T = TypeVar("T")

_TRAIN = "train"
_EXCLUDED = {
    "rows_quarantined": QUARANTINED,
    "rows_left_out": "in a gap",
    "rows_unselected": "not selected by data.where",
    "rows_sampled_out": "not kept by data.sample",
}
"""Property of the examples → why its rows are in no split."""


def summarize(store: Store, run: str) -> RunSummary:
    """Summarize a run. Fields that no node has recorded yet are empty.

    Args:
      store: The store that holds the run.
      run: ID of the run.
    """
    # The first Examples artifact of a run holds the ingested rows. Later Examples artifacts hold transformed rows.
    examples = next(iter(store.artifacts(run, "Examples")), None)
    evaluation = _find_last(store, run, "ModelEvaluation")
    slices, verdict = read_evaluation(evaluation.uri) if evaluation else ((), None)
    overall = next((metrics for metrics in slices if not metrics.slice), None)
    pushed = _find_last(store, run, "PushedModel")
    model = _find_last(store, run, "Model")
    graph = _find_last(store, run, "TransformGraph")
    return RunSummary(
        rows_read=_read_count(examples, "rows_read"),
        rows=_count_rows(store, run, examples),
        rows_excluded={why: count for name, why in _EXCLUDED.items() if (count := _read_count(examples, name))},
        joins=tuple(json.loads(_read_text(examples, "joins") or "[]")),
        quarantine=_read_text(examples, "quarantine"),
        column_types=json.loads(_read_text(examples, "column_types") or "{}"),
        near_duplicates=_read_near_duplicates(store, run),
        hash_collisions=_read_hash_collisions(graph),
        unparsed_dates=_read_unparsed_dates(graph),
        coarse_numbers=_find_coarse_numbers(store, run),
        training=_read_training(_find_last(store, run, "ModelRun")),
        tasks=_read_task_loads(_find_last(store, run, "ModelRun")),
        tuned=_read_tuned_values(_find_last(store, run, "HyperParameters")),
        metrics=overall.metrics if overall else {},
        baseline=overall.baseline if overall else {},
        intervals=overall.intervals if overall else {},
        constant=overall.constant if overall else {},
        linear=overall.linear if overall else {},
        rows_evaluated=overall.rows if overall else None,
        slices=tuple(metrics for metrics in slices if metrics.slice),
        checks=verdict.checks if verdict else (),
        warnings=verdict.warnings if verdict else (),
        decisions=verdict.decisions if verdict else {},
        missed_classes=_find_missed_classes(evaluation, graph),
        verdict=_read_verdict(_find_last(store, run, "ModelBlessing")),
        forced=verdict.forced if verdict else None,
        serving=_read_serving_check(_find_last(store, run, "InfraBlessing")),
        pushed=_read_text(pushed, "pushed_destination") if _read_count(pushed, "pushed") else None,
        pushed_version=_read_text(pushed, "pushed_version") if _read_count(pushed, "pushed") else None,
        awaits_approval=_read_text(pushed, APPROVAL) == PENDING,
        approval=_read_approval(pushed),
        model=model.uri if model else None,
        results=read_results(store, run),
    )


def _find_last(store: Store, run: str, type_name: str) -> Artifact | None:
    """Return the last artifact of a type in a run. None if there is none."""
    artifacts = store.artifacts(run, type_name)
    return artifacts[-1] if artifacts else None


def read_results(store: Store, run: str) -> dict[str, Any]:
    """Read the results that nodes have recorded.

    Args:
      store: The store that holds the run.
      run: ID of the run.

    Returns:
      The results by node. Nodes that did not succeed, and nodes whose output was deleted, are left out.
    """
    added = [name for name in NODES.added if store.execution(run, name) and isinstance(NODES[name], NodeWithResult)]
    results = {name: read_result(store, run, name) for name in (*NODES_WITH_RESULT, *added)}
    return {name: result for name, result in results.items() if result is not None}


def read_result(store: Store, run: str, name: str) -> Any:
    """Read the result of a node. Return None if the node did not succeed in the run or its output was deleted."""
    execution, node = store.execution(run, name), NODES_WITH_RESULT[name]
    outputs = store.outputs(execution) if execution and execution.succeeded else {}
    artifacts = outputs.get(node.result_output or next(iter(outputs), ""))
    if not artifacts:
        return None
    uri = artifacts[0].uri
    content = file_io.read(file_io.join(uri, node.result_file) if node.result_file else uri)
    return None if content is None else node.parse_result(content.decode())


def _count_rows(store: Store, run: str, examples: Artifact | None) -> dict[str, int]:
    """Return the number of rows per split.

    This project's ExampleGen records the numbers. TFX's ExampleGen does not, so its rows are read from the statistics.
    """
    if examples is None:
        return {}
    counts = {split: _read_count(examples, f"rows_{split}") for split in examples.splits}
    rows = {split: count for split, count in counts.items() if count is not None}
    statistics = column_statistics.statistics(store, run)
    if rows or statistics is None:
        return rows
    return {split: int(_read_statistics(statistics, split).num_examples) for split in statistics.splits}


def _read_statistics(statistics: Artifact, split: str) -> statistics_pb2.DatasetFeatureStatistics:
    # The file is missing if the artifacts of the run were deleted.
    content = file_io.read(file_io.join(statistics.uri, f"Split-{split}/FeatureStats.pb")) or b""
    datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(content).datasets
    # With slices, StatisticsGen writes one data set per slice. The first data set covers all rows.
    return datasets[0] if datasets else statistics_pb2.DatasetFeatureStatistics()


def _find_coarse_numbers(store: Store, run: str) -> tuple[CoarseNumbers, ...]:
    statistics = column_statistics.statistics(store, run)
    if statistics is None or _TRAIN not in statistics.splits:
        return ()
    return tuple(find_coarse_numbers(_read_statistics(statistics, _TRAIN)))


def _read_near_duplicates(store: Store, run: str) -> tuple[NearDuplicates, ...]:
    statistics = column_statistics.statistics(store, run)
    return tuple(image_statistics.near_duplicates(statistics.uri)) if statistics else ()


def _read_hash_collisions(graph: Artifact | None) -> tuple[HashCollisions, ...]:
    return graph_files.hash_collisions(graph.uri) if graph else ()


def _read_unparsed_dates(graph: Artifact | None) -> tuple[UnparsedDates, ...]:
    return graph_files.read_unparsed_dates(graph.uri) if graph else ()


def _find_missed_classes(evaluation: Artifact | None, graph: Artifact | None) -> MissedClasses | None:
    plots = read_plots(evaluation.uri) if evaluation else None
    classes = graph_files.read_label_classes(graph.uri) if graph else []
    return plot_data.find_missed_classes(plots, classes) if plots else None


def _read_training(model_run: Artifact | None) -> dict[str, int]:
    of_cluster = ("steps", "restarts", "repeated", "damaged", "worker_peak_mb", "ps_peak_mb")
    of_mesh = (device_memory.DEVICES, device_memory.LARGEST)
    names = (*of_cluster, *of_mesh, input_wait.SECONDS, input_wait.WAITED)
    counts = {name: _read_count(model_run, name) for name in names}
    return {name: count for name, count in counts.items() if count is not None}


def _read_task_loads(model_run: Artifact | None) -> tuple[TaskLoad, ...]:
    text = _read_text(model_run, task_load.PROPERTY)
    return task_load.from_json(text) if text else ()


def _read_tuned_values(best: Artifact | None) -> dict[str, Any]:
    values = _parse_file(best.uri, "best_hyperparameters.txt", json.loads) if best else None
    return plain(values["values"]) if values else {}


def _read_verdict(blessing: Artifact | None) -> str:
    blessed = _read_count(blessing, "blessed")
    if blessed is None:
        return NOT_EVALUATED
    return BLESSED if blessed else NOT_BLESSED


def _read_serving_check(blessing: Artifact | None) -> ServingCheckResult | None:
    """Return the result of the serving check. None if the run did not check serving."""
    if blessing is None:
        return None
    result = _parse_file(blessing.uri, FILE, ServingCheckResult.from_json)
    # TFX's InfraValidator records only whether the model passed.
    return result or ServingCheckResult(server="", passed=bool(_read_count(blessing, "blessed")))


def _read_approval(pushed: Artifact | None) -> dict[str, str]:
    properties = {"by": "approved_by", "at": "approved_at", "note": "approval_note"}
    texts = {name: _read_text(pushed, key) for name, key in properties.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _read_count(artifact: Artifact | None, key: str) -> int | None:
    value = artifact.properties.get(key) if artifact else None
    return None if value is None else int(value)


def _read_text(artifact: Artifact | None, key: str) -> str | None:
    value = artifact.properties.get(key) if artifact else None
    return None if value is None else str(value)


def read_evaluation(folder: str) -> tuple[tuple[SliceMetrics, ...], Verdict | None]:
    """Read the metrics and the verdict of an evaluation.

    Args:
      folder: Folder of a ModelEvaluation artifact.

    Returns:
      The metrics of the whole split followed by the metrics of slices, and the verdict. The verdict is None for TFX's
      Evaluator. If the folder was deleted, the metrics are empty and the verdict is None.
    """
    evaluation = _parse_file(folder, verdict.FILE, Verdict.from_json)
    if evaluation is not None:
        return evaluation.slices, evaluation
    if not file_io.file_system(folder).isdir(folder):
        return (), None
    # Imported late because importing TFMA takes seconds, and only results of TFX's Evaluator need it.
    from components.evaluator import tfma_results

    with local_copy(folder) as copy:
        slices = tfma_results.read(copy)
    return tuple(sorted(slices, key=lambda metrics: sorted(metrics.slice.items()))), None


def read_plots(folder: str) -> Plots | None:
    """Read the data of an evaluation's charts. Return None if it was not recorded.

    Args:
      folder: Folder of a ModelEvaluation artifact.
    """
    return _parse_file(folder, plot_data.FILE, Plots.from_json)


def read_mistakes(folder: str) -> list[Mistake] | None:
    """Read the images that the model misclassifies with the highest confidence. Return None if they were not recorded.

    Args:
      folder: Folder of a ModelEvaluation artifact.
    """
    return _parse_file(folder, mistakes.FILE, mistakes.from_json)


def read_dependence(folder: str) -> Dependence | None:
    """Read the partial dependence of the prediction on columns. Return None if it was not recorded.

    Args:
      folder: Folder of a ModelEvaluation artifact.
    """
    return _parse_file(folder, dependence.FILE, Dependence.from_json)


def read_importance(folder: str) -> Importance | None:
    """Read the importance of the columns. Return None if it was not recorded.

    Args:
      folder: Folder of a ModelEvaluation artifact.
    """
    return _parse_file(folder, importance.FILE, Importance.from_json)


def _parse_file(folder: str, name: str, parse: Callable[[str], T]) -> T | None:
    """Parse a text file of an artifact. Return None if it does not exist."""
    content = file_io.read(file_io.join(folder, name))
    return None if content is None else parse(content.decode())
