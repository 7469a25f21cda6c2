"""Runs with everything that a report shows, with plain or hostile names (HTML, control characters)."""

from __future__ import annotations

import base64
import io
import itertools
import json
import struct
from dataclasses import asdict, replace
from pathlib import Path

from PIL import Image
from tensorboard.compat.proto import event_pb2
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from components.base.config_section import Task
from components.data import image_statistics
from components.data.near_duplicates import NearDuplicates, Pair
from components.evaluator import mistakes
from components.evaluator.dependence import ColumnDependence, Curve, Dependence, GridPoint, HeatMap, Interaction
from components.evaluator.importance import (
    ColumnImportance,
    ColumnSelection,
    Estimate,
    Importance,
    SliceImportance,
)
from components.evaluator.mistakes import Mistake
from components.evaluator.plot_data import Bucket, Confusion, ModelPlots, Plots
from components.evaluator.verdict import Check, ConstantMetric, SliceMetrics, Verdict
from components.monitor.result import (
    Finding,
    Judgement,
    Monitoring,
    Outcome,
    VersionDifference,
)
from components.results import task_load
from components.results.column_comparison import Bin, ColumnComparison
from components.results.task_load import TaskLoad
from components.tuner import result
from components.tuner.result import Trial
from pipeline.core.metadata.store import Run, Store
from pipeline.inspection.report import content
from pipeline.inspection.report.content import Content
from tests.support.runs.store_writer import Writer

HARM = "</title></style><script>alert(1)</script>'\"><img src=x onerror=alert(1)>\n\x1b[31m\u202e{{ 7 * 7 }}&amp;"
"""A name that breaks out of whatever forgets to escape it."""

SPLITS = '["train", "eval"]'
CONFIG = {
    "data": {"label": "tip", "task": "binary"},
    "features": {"columns": {"fare": [{"op": "log"}], "company": [{"op": "vocab", "size": 10}]}},
    "model": {"kind": "wide_deep"},
}


def write_run(
    folder: Path,
    run: str = "r1",
    writer: Writer | None = None,
    harm: str = "",
    columns: int = 0,
    slices: int = 0,
    fares: float = 1.0,
    task: Task = "binary",
    classes: int = 2,
) -> Writer:
    """Write a run with statistics, anomalies, a transform graph, curves, a verdict and the data of its plots.

    Args:
      folder: Folder for `metadata.db` and the artifacts.
      run: its id.
      writer: Writer of an existing store, or None to create one.
      harm: Hostile text that is appended to every user-defined name.
      columns: Number of columns in addition to `fare` and `company`.
      slices: Number of slices in addition to the first.
      fares: Factor by which the histogram of `fare` is widened.
      task: Task that determines the plots.
      classes: Number of classes in the confusion matrix; a thousand more are grouped as other classes.
    """
    here = folder / run
    here.mkdir(parents=True)
    writer = writer or Writer(folder / "metadata.db")
    examples = writer.artifact("Examples", str(here / "e"), split_names=SPLITS, rows_read=13, rows_train=8, rows_eval=4)
    writer.execution(run, "ExampleGen", outputs=(examples,))
    for split in ("train", "eval"):
        write_statistics(here / "statistics" / f"Split-{split}" / "FeatureStats.pb", harm, columns, fares)
        write_anomalies(here / "anomalies" / f"Split-{split}" / "SchemaDiff.pb", harm)
    pairs = (Pair(0.9876, f"new.jpg{harm}", f"old.jpg{harm}"),)
    duplicates = [NearDuplicates(f"image{harm}", "eval", 4, 3, pairs), NearDuplicates("image", "test", 0, 0)]
    image_statistics.write_near_duplicates(duplicates, str(here / "statistics"))
    statistics = writer.artifact("ExampleStatistics", str(here / "statistics"), split_names=SPLITS)
    writer.execution(run, "StatisticsGen", outputs=(statistics,))
    anomalies = writer.artifact("ExampleAnomalies", str(here / "anomalies"), split_names=SPLITS)
    writer.execution(run, "ExampleValidator", outputs=(anomalies,))
    write_graph(here / "graph", harm, classes)
    writer.execution(run, "Transform", outputs=(writer.artifact("TransformGraph", str(here / "graph")),))
    write_events(here / "model_run" / "train", {f"loss{harm}": [0.5, 0.25, 0.125]})
    loads = (TaskLoad("ps-0", 512_000_000, 12.34, 3_200_000, 4_500_000, 96_000_000),)
    counts = {"steps": 30, "restarts": 0, "repeated": 0, "damaged": 0}
    model_run = writer.artifact("ModelRun", str(here / "model_run"), tasks=task_load.to_json(loads), **counts)
    writer.execution(run, "Trainer", outputs=(writer.artifact("Model", str(here / "model")), model_run))
    (here / "tuner").mkdir()
    (here / "tuner" / result.FILE).write_text(json.dumps([asdict(trial) for trial in trials(harm)]))
    tuner_outputs = writer.artifact("HyperParameters", str(here)), writer.artifact("TunerResults", str(here / "tuner"))
    writer.execution(run, "Tuner", outputs=tuner_outputs, keys=("best_hyperparameters", "tuner_results"))
    (here / "evaluation").mkdir()
    (here / "evaluation" / "verdict.json").write_text(verdict(harm, slices).to_json())
    (here / "evaluation" / "importance.json").write_text(importance(harm).to_json())
    (here / "evaluation" / "dependence.json").write_text(dependence(harm).to_json())
    (here / "evaluation" / "mistakes.json").write_text(mistakes.to_json(worst(harm)))
    (here / "evaluation" / "plots.json").write_text(plots(task, classes).to_json())
    evaluation = writer.artifact("ModelEvaluation", str(here / "evaluation"))
    (here / "monitoring").write_text(json.dumps(monitoring(harm).to_dict()))
    writer.execution(run, "Monitor", outputs=(writer.artifact("JsonValue", str(here / "monitoring")),))
    blessing = writer.artifact("ModelBlessing", blessed=0)
    writer.execution(run, "Evaluator", outputs=(evaluation, blessing))
    config = {**CONFIG, "pipeline": {"name": harm}}
    writer.run(run, json.dumps(config))
    return writer


def trials(harm: str = "") -> list[Trial]:
    """Return the trials of a search with halving: one has trained for all steps, one has failed."""
    rungs = [(10, 0.75), (30, 0.5), (90, 0.375)]
    curve = [(10, 0.75), (20, 0.6), (30, 0.5), (60, 0.4), (90, 0.375)]
    kind = f"mlp{harm}"
    return [
        Trial("2", result.COMPLETED, {"learning_rate": 0.01, "kind": kind}, 0.375, 4.0, 90, curve, rungs),
        Trial("0", result.STOPPED, {"learning_rate": 0.1, "kind": kind}, 0.5625, 2.0, 30, curve[:3], rungs[:2]),
        Trial("1", result.STOPPED, {"learning_rate": 0.0001, "kind": "dlrm"}, 0.8125, 1.5, 10, curve[:1], rungs[:1]),
        Trial("3", result.FAILED, {"learning_rate": 9.0, "kind": kind}, None, 1.0, rungs=[(10, None)], why=f"?{harm}"),
    ]


def monitoring(harm: str = "") -> Monitoring:
    """Return a Monitor result of two versions: a column of the first has drifted, and a metric is below its bound."""
    bins = (Bin(f"Blue{harm}", 0.75, 0.25), Bin("others", 0.25, 0.75))
    company = ColumnComparison(f"company{harm}", 0.5, 1.25, 0.0, (0.1, 0.2), 0.625, bins)
    empty = ColumnComparison("fare", None, None, 1.0, (0.0, 1.0), None, ())
    finding = Finding(f"company{harm}", "distance", 0.5, 0.1)
    live = SliceMetrics({}, 800, {"auc": 0.625}, {"auc": 0.75}, {"auc": (0.5, 0.7)})
    of_slice = SliceMetrics({f"company{harm}": f"Blue{harm}"}, 20, {"auc": 0.6}, {})
    evaluated = SliceMetrics({}, 4, {"auc": 0.75}, {}, {"auc": (0.625, 0.875)})
    check = Check("auc", {}, "at most 0.1 below the baseline", 0.625, 0.75, 800, False, f"difference -0.125{harm}")
    return Monitoring(
        (
            Judgement(17, "training", 1000, 900, 8, (company, empty), (finding,)),
            Judgement(18, "training", 10, 10, 8, (), None),
        ),
        (Outcome(17, 900, 850, 800, (live, of_slice), (evaluated,), (check,)), Outcome(18, 10, 0, 0)),
        (VersionDifference(17, 18, 70, {"auc": Estimate(-0.25, (-0.5, 0.125)), "mean label": Estimate(0.1)}),),
    )


def verdict(harm: str = "", slices: int = 0) -> Verdict:
    """Return the verdict on a model that violates one bound."""
    where = {f"company{harm}": f"Blue{harm}"}
    several = [SliceMetrics({"company": str(number)}, number, {"auc": 0.5}, {}) for number in range(slices)]
    return Verdict(
        blessed=False,
        forced=None,
        rows=4,
        checks=(
            Check("auc", {}, "at least 0.5", 0.75, 0.7, 4, passed=True, why=None),
            Check("auc", where, f"at least 0.6{harm}", 0.5, None, 2, passed=False, why=f"few rows{harm}"),
        ),
        slices=(
            SliceMetrics(
                {},
                4,
                {"auc": 0.75, f"loss{harm}": 0.25},
                {"auc": 0.7},
                {"auc": (0.625, 0.875)},
                {"auc": ConstantMetric(0.5, 0.25, (0.125, 0.375)), "brier_score": ConstantMetric(0.25)},
            ),
            SliceMetrics(where, 2, {"auc": 0.5}, {"auc": 0.55}),
            *several,
        ),
        warnings=(f"leakage of refund{harm}: expected below 0.998, received 1",),
    )


def importance(harm: str = "") -> Importance:
    """Return the importance of two columns, overall and in a slice."""
    fare = ColumnImportance(f"fare{harm}", Estimate(0.25, (0.125, 0.375)), Estimate(1.0, (0.5, 1.0)), Estimate(0.0625))
    company = ColumnImportance("company", Estimate(-0.125, (-0.5, 0.25)), Estimate(0.0, (0.0, 0.5)))
    of_slice = replace(fare, share=None, loss=Estimate(0.5))
    slices = (
        SliceImportance({}, 4, 0.25, (fare, company)),
        SliceImportance({f"company{harm}": f"Blue{harm}"}, 2, 0.5, (of_slice, replace(company, share=None))),
    )
    selection = ColumnSelection(("company",), Estimate(-0.125, (-0.5, 0.25)), 0.5, {f"day{harm}": f"needed{harm}"})
    return Importance("binary_crossentropy", 1, slices, {f"fare{harm}": 2.0, "company": None}, selection)


def dependence(harm: str = "", classes: tuple[int | None, ...] = (None,)) -> Dependence:
    """Return the partial dependence on a column of numbers and a column of texts, and their interaction."""
    numbers = (*map(GridPoint, (1.0, 2.0, 5.0)), GridPoint(None, 0.25, "missing"))
    texts = (GridPoint(f"Blue{harm}", 0.5), GridPoint("Red", 0.25), GridPoint(None, 0.25, "others"))
    columns = tuple(
        ColumnDependence(
            f"{name}{harm}",
            name == "fare",
            points,
            tuple(
                Curve(
                    number,
                    tuple(0.25 + at / 8 for at in range(len(points))),
                    tuple(0.125 + at / 8 for at in range(len(points))),
                    tuple(0.375 + at / 8 for at in range(len(points))),
                )
                for number in classes
            ),
        )
        for name, points in (("fare", numbers), ("company", texts))
    )
    names = (f"fare{harm}", f"company{harm}")
    cells = tuple(tuple(row * 0.125 + cell * 0.0625 for cell in range(3)) for row in range(4))
    return Dependence(
        "probability",
        4,
        columns,
        {f"items{harm}": f"rows have several values{harm}"},
        "log-odds",
        3,
        (Interaction(names, 0.75, 0.5),),
        HeatMap(names, (numbers, texts), classes[0], cells),
        (f"only 4 rows were used{harm}",),
    )


def worst(harm: str = "") -> list[Mistake]:
    """Return the worst predictions: with a thumbnail, without it, and with a thumbnail that is not base64."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize((48, 96)).save(file, "JPEG")
    thumbnail = base64.b64encode(file.getvalue()).decode()
    return [
        Mistake(f"cats/1.jpg{harm}", f"cat{harm}", f"dog{harm}", 0.984375, thumbnail),
        Mistake("", "dog", "cat", 0.75, ""),
        Mistake("cats/2.jpg", "cat", "dog", 0.625, f"not base64{harm}"),
    ]


def plots(task: Task = "binary", classes: int = 2) -> Plots:
    """Return the plots of a model and its baseline, over a thousand rows."""
    edges = [at / 20 for at in range(21)]
    buckets = {
        share: tuple(
            Bucket(low, high, 50.0, 50 * (share * low + (1 - share) * 0.3), 50 * (low + high) / 2)
            for low, high in itertools.pairwise(edges)
        )
        for share in (1.0, 0.7)
    }
    if task == "multiclass":
        right = Confusion(
            tuple(range(classes)),
            1000,
            tuple(tuple(20.0 if at == column else 1.0 for column in range(classes + 1)) for at in range(classes + 1)),
        )
        return Plots(task, ModelPlots(confusion=right), ModelPlots(confusion=right))
    residuals = tuple(Bucket(low - 0.5, high - 0.5, 50.0, 0.0, 0.0) for low, high in itertools.pairwise(edges))
    sides = [ModelPlots(buckets[share], residuals if task == "regression" else ()) for share in (1.0, 0.7)]
    return Plots(task, *sides)


def write_statistics(file: Path, harm: str = "", columns: int = 0, fares: float = 1.0) -> None:
    """Write TFDV's statistics of a text column and of one or more numeric columns."""
    statistics = statistics_pb2.DatasetFeatureStatisticsList()
    rows = statistics.datasets.add(num_examples=10)
    for name in (f"fare{harm}", *(f"more{number}" for number in range(columns))):
        feature = rows.features.add(type=statistics_pb2.FeatureNameStatistics.FLOAT)
        feature.path.step.append(name)
        numbers = feature.num_stats
        numbers.mean, numbers.median, numbers.min, numbers.max = 2.5, 2.0, 0.0, 40.0 * fares
        numbers.common_stats.num_non_missing = numbers.common_stats.tot_num_values = 9
        histogram = numbers.histograms.add(type=statistics_pb2.Histogram.QUANTILES)
        for low, high in ((0.0, 1.0), (1.0, 1.0), (1.0, 4.0), (4.0, 40.0)):
            histogram.buckets.add(low_value=low * fares, high_value=high * fares, sample_count=2.25)
    feature = rows.features.add(type=statistics_pb2.FeatureNameStatistics.STRING)
    feature.path.step.append("company")
    texts = feature.string_stats
    texts.unique = 2
    texts.common_stats.num_non_missing = texts.common_stats.tot_num_values = 10
    for text, count in ((f"Blue{harm}", 7.0), ("Top", 3.0)):
        texts.rank_histogram.buckets.add(label=text, sample_count=count)
        texts.top_values.add(value=text, frequency=count)
    file.parent.mkdir(parents=True)
    file.write_bytes(statistics.SerializeToString())


def write_anomalies(file: Path, harm: str = "") -> None:
    """Write an anomaly of one column that does not match the schema."""
    anomalies = anomalies_pb2.Anomalies()
    info = anomalies.anomaly_info[f"fare{harm}"]
    info.short_description, info.description = f"Out-of-range values{harm}", f"Unexpectedly high value: 40.{harm}"
    info.severity = anomalies_pb2.AnomalyInfo.ERROR
    file.parent.mkdir(parents=True)
    file.write_bytes(anomalies.SerializeToString())


def write_graph(folder: Path, harm: str = "", classes: int = 2) -> None:
    """Write a transform graph with two vocabularies and the vocabulary of classes."""
    assets = folder / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    (folder / "transformed_metadata").mkdir()
    names = {
        "company_vocab": "vocabulary_a",
        f"label_counts{harm}": "vocabulary_b",
        "label_classes": "vocabulary_label_classes",
    }
    one_line = harm.replace("\n", " ")
    (assets / "vocabulary_label_classes").write_text("".join(f"class {at}{one_line}\n" for at in range(classes)))
    (folder / "transformed_metadata" / "asset_map").write_text(json.dumps(names))
    (assets / "vocabulary_a").write_text("Blue\nTop\nKOAM\n")
    (assets / "vocabulary_b").write_text("8 1\n5 0\n")


def write_events(folder: Path, curves: dict[str, list[float]]) -> Path:
    """Write an event file in TensorFlow 2's format with a point at every tenth step; return its path."""
    records = []
    for name, values in curves.items():
        for number, value in enumerate(values):
            event = event_pb2.Event(step=10 * (number + 1))
            summary_value = event.summary.value.add(tag=name)
            summary_value.tensor.dtype = 1
            summary_value.tensor.tensor_content = struct.pack("<f", value)
            records.append(event.SerializeToString())
    folder.mkdir(parents=True)
    file = folder / "events.out.tfevents.1.host.v2"
    file.write_bytes(b"".join(frame(record) for record in records))
    return file


def frame(record: bytes) -> bytes:
    """Frame a record for a TFRecord file; readers here do not verify the checksums."""
    return struct.pack("<QI", len(record), 0) + record + bytes(4)


def the_run(folder: Path, run: str = "r1") -> tuple[Store, Run]:
    """Return the store in a folder, and a run in it."""
    store = Store(folder / "metadata.db")
    return store, next(stored_run for stored_run in store.runs() if stored_run.name == run)


def content_of(folder: Path, run: str = "r1") -> Content:
    """Collect the content of a run's report."""
    store, recorded_run = the_run(folder, run)
    return content.collect(store, folder / "logs", recorded_run)
