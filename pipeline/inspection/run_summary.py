"""The summary of a run: rows, training, metrics, verdict, serving check and pushed version, from its artifacts.

The metrics and the verdict are those of our Evaluator; a stock Evaluator has metrics only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.data import file_io, image_statistics
from components.data.coarse_numbers import CoarseNumbers, find_coarse_numbers
from components.data.near_duplicates import NearDuplicates
from components.evaluator import importance, mistakes, plot_data, verdict
from components.evaluator.importance import Importance
from components.evaluator.mistakes import Mistake
from components.evaluator.plot_data import Plots
from components.evaluator.verdict import SliceMetrics, Verdict
from components.features import graph_files
from components.features.hash_collisions import HashCollisions
from components.features.unparsed_dates import UnparsedDates
from components.serving.check_result import FILE, ServingCheckResult
from components.tuner.trial_values import plain
from pipeline.core.metadata.store import Artifact, Store
from pipeline.core.nodes import NODES_WITH_RESULT
from pipeline.core.records import BLESSED, NOT_BLESSED, NOT_EVALUATED, RunSummary
from pipeline.inspection import column_statistics

_TRAIN = "train"


def summarize(store: Store, run: str) -> RunSummary:
    """Returns the summary of a run; what no node has recorded yet is empty.

    Args:
      store: with the run.
      run: its id.
    """
    examples = _newest(store, run, "Examples", first=True)
    evaluation = _newest(store, run, "ModelEvaluation")
    slices, verdict = read_evaluation(evaluation.uri) if evaluation else ((), None)
    overall = next((each for each in slices if not each.slice), None)
    pushed = _newest(store, run, "PushedModel")
    model = _newest(store, run, "Model")
    graph = _newest(store, run, "TransformGraph")
    return RunSummary(
        rows_read=_count(examples, "rows_read"),
        rows=_rows(store, run, examples),
        rows_quarantined=_count(examples, "rows_quarantined") or 0,
        rows_left_out=_count(examples, "rows_left_out") or 0,
        quarantine=_text(examples, "quarantine"),
        column_types=json.loads(_text(examples, "column_types") or "{}"),
        near_duplicates=_near_duplicates(store, run),
        hash_collisions=_hash_collisions(graph),
        unparsed_dates=_unparsed_dates(graph),
        coarse_numbers=_coarse_numbers(store, run),
        training=_training(_newest(store, run, "ModelRun")),
        tuned=_tuned(_newest(store, run, "HyperParameters")),
        metrics=overall.metrics if overall else {},
        baseline=overall.baseline if overall else {},
        intervals=overall.intervals if overall else {},
        constant=overall.constant if overall else {},
        rows_evaluated=overall.rows if overall else None,
        slices=tuple(each for each in slices if each.slice),
        checks=verdict.checks if verdict else (),
        warnings=verdict.warnings if verdict else (),
        verdict=_verdict(_newest(store, run, "ModelBlessing")),
        forced=verdict.forced if verdict else None,
        serving=_serving(_newest(store, run, "InfraBlessing")),
        pushed=_text(pushed, "pushed_destination") if _count(pushed, "pushed") else None,
        pushed_version=_text(pushed, "pushed_version") if _count(pushed, "pushed") else None,
        model=model.uri if model else None,
        results=read_results(store, run),
    )


def _newest(store: Store, run: str, type_name: str, first: bool = False) -> Artifact | None:
    """Returns the last artifact of a type; with `first` the first: the ingested examples, not Transform's."""
    artifacts = store.artifacts(run, type_name)
    return (artifacts[0] if first else artifacts[-1]) if artifacts else None


def read_results(store: Store, run: str) -> dict[str, Any]:
    """Read the results that nodes have recorded.

    Args:
      store: The store with the run.
      run: ID of the run.

    Returns:
      Node → its result. Without nodes that did not succeed, and nodes whose output was deleted.
    """
    results = {name: read_result(store, run, name) for name in NODES_WITH_RESULT}
    return {name: result for name, result in results.items() if result is not None}


def read_result(store: Store, run: str, name: str) -> Any:
    """Read the result of a node; return None if it did not succeed in the run, or its output was deleted."""
    execution, node = store.execution(run, name), NODES_WITH_RESULT[name]
    outputs = store.outputs(execution) if execution and execution.succeeded else {}
    if not outputs:
        return None
    uri = next(iter(outputs.values()))[0].uri
    path = file_io.join(uri, node.result_file) if node.result_file else uri
    if not file_io.file_system(path).exists(path):
        return None
    with file_io.open_binary(path) as file:
        return node.parse_result(file.read().decode())


def _rows(store: Store, run: str, examples: Artifact | None) -> dict[str, int]:
    """Returns rows per split as the ingest counted them; a stock ExampleGen counts none: then from the statistics."""
    if examples is None:
        return {}
    counted = {split: _count(examples, f"rows_{split}") for split in examples.splits}
    rows = {split: count for split, count in counted.items() if count is not None}
    statistics = column_statistics.statistics(store, run)
    if rows or statistics is None:
        return rows
    return {split: int(_read_statistics(statistics, split).num_examples) for split in statistics.splits}


def _read_statistics(statistics: Artifact, split: str) -> statistics_pb2.DatasetFeatureStatistics:
    file = Path(statistics.uri) / f"Split-{split}" / "FeatureStats.pb"
    # Artifacts of old runs may have been deleted.
    content = file.read_bytes() if file.exists() else b""
    datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(content).datasets
    # With slices, each has a data set; the first is of all rows.
    return datasets[0] if datasets else statistics_pb2.DatasetFeatureStatistics()


def _coarse_numbers(store: Store, run: str) -> tuple[CoarseNumbers, ...]:
    statistics = column_statistics.statistics(store, run)
    if statistics is None or _TRAIN not in statistics.splits:
        return ()
    return tuple(find_coarse_numbers(_read_statistics(statistics, _TRAIN)))


def _near_duplicates(store: Store, run: str) -> tuple[NearDuplicates, ...]:
    statistics = column_statistics.statistics(store, run)
    return tuple(image_statistics.near_duplicates(statistics.uri)) if statistics else ()


def _hash_collisions(graph: Artifact | None) -> tuple[HashCollisions, ...]:
    return graph_files.hash_collisions(graph.uri) if graph else ()


def _unparsed_dates(graph: Artifact | None) -> tuple[UnparsedDates, ...]:
    return graph_files.unparsed_dates(graph.uri) if graph else ()


def _training(model_run: Artifact | None) -> dict[str, int]:
    counts = {name: _count(model_run, name) for name in ("steps", "restarts", "repeated", "damaged")}
    return {name: count for name, count in counts.items() if count is not None}


def _tuned(best: Artifact | None) -> dict[str, Any]:
    file = Path(best.uri) / "best_hyperparameters.txt" if best else None
    return plain(json.loads(file.read_text())["values"]) if file and file.exists() else {}


def _verdict(blessing: Artifact | None) -> str:
    blessed = _count(blessing, "blessed")
    if blessed is None:
        return NOT_EVALUATED
    return BLESSED if blessed else NOT_BLESSED


def _serving(blessing: Artifact | None) -> ServingCheckResult | None:
    """Returns the result of the serving check; a stock InfraValidator records only its verdict."""
    if blessing is None:
        return None
    file = Path(blessing.uri) / FILE
    if file.exists():
        return ServingCheckResult.from_json(file.read_text())
    return ServingCheckResult(server="", passed=bool(_count(blessing, "blessed")))


def _count(artifact: Artifact | None, key: str) -> int | None:
    value = artifact.properties.get(key) if artifact else None
    return None if value is None else int(value)


def _text(artifact: Artifact | None, key: str) -> str | None:
    value = artifact.properties.get(key) if artifact else None
    return None if value is None else str(value)


def read_evaluation(folder: str) -> tuple[tuple[SliceMetrics, ...], Verdict | None]:
    """Reads the metrics of an evaluation, and its verdict.

    Args:
      folder: of a ModelEvaluation artifact.

    Returns:
      The metrics of the whole split, then of each slice; and the verdict, None of a stock Evaluator. Both are empty if
      the folder was removed.
    """
    file = Path(folder) / verdict.FILE
    if file.exists():
        recorded = Verdict.from_json(file.read_text(encoding="utf-8"))
        return recorded.slices, recorded
    if not Path(folder).is_dir():
        return (), None
    # Imported late: TFMA takes seconds, and a verdict is read without it.
    from components.evaluator import tfma_results

    slices = tfma_results.read(folder)
    return tuple(sorted(slices, key=lambda each: sorted(each.slice.items()))), None


def read_plots(folder: str) -> Plots | None:
    """Reads the data of an evaluation's charts; None if our Evaluator did not record it.

    Args:
      folder: of a ModelEvaluation artifact.
    """
    file = Path(folder) / plot_data.FILE
    return Plots.from_json(file.read_text(encoding="utf-8")) if file.exists() else None


def read_mistakes(folder: str) -> list[Mistake] | None:
    """Reads the images that the model is wrong about and most sure of; None if they were not looked for.

    Args:
      folder: of a ModelEvaluation artifact.
    """
    file = Path(folder) / mistakes.FILE
    return mistakes.from_json(file.read_text(encoding="utf-8")) if file.exists() else None


def read_importance(folder: str) -> Importance | None:
    """Reads the importance of the columns; None if our Evaluator did not record it.

    Args:
      folder: of a ModelEvaluation artifact.
    """
    file = Path(folder) / importance.FILE
    return Importance.from_json(file.read_text(encoding="utf-8")) if file.exists() else None
