"""The columnar Evaluator writes results that TFMA's loaders read as they read the stock Evaluator's results."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from components.evaluator import mistakes
from pipeline.orchestration.engines import direct
from tests.support.data import evaluator_tables
from tests.support.data.evaluator_tables import Evaluation, Setting
from tests.support.servers.beam_servers import job_service
from tests.support.servers.in_fork_server import in_child

pytestmark = pytest.mark.both_lines

BINARY = {
    "slices": ["tags", ["tags", "group"], "never"],
    "metrics": [
        *("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "calibration", "precision"),
        *("expected_calibration_error", "recall", "f1", "brier_score", "precision_at_0.7", "recall_at_0.35"),
        *("f1_at_0.2", "binary_accuracy_at_0.25", "precision_at_20", "recall_at_20"),
    ],
    "thresholds": {"auc": {"min": 0.5}},
    "slice_thresholds": {"place = 1": {"auc": {"min": 0.5}}, "group = none": {"auc": {"min": 0.5}}},
    "fairness": {"column": "group", "at": 0.4},
}
FEW = {"slices": ["group"], "metrics": ["auc", "binary_accuracy"], "thresholds": {"auc": {"min": 0.5}}}
MULTICLASS = {
    "slices": ["group", "tags"],
    "metrics": ["accuracy", "crossentropy", "accuracy_at_2"],
    "thresholds": {"accuracy": {"min": 0}},
}
REGRESSION = {
    "slices": ["size"],
    "metrics": [
        *("mean_squared_error", "mean_absolute_error", "root_mean_squared_error", "mean_absolute_percentage_error"),
        *("r_squared", "quantile_loss_at_0.9"),
    ],
    "thresholds": {"mean_squared_error": {"max": 100.0}},
}
BINARY_SETTING = Setting("binary", BINARY)
QUANTILES = {
    "slices": ["size"],
    "metrics": ["quantile_loss", "quantile_loss_at_0.8", "interval_coverage", "interval_width", "mean_absolute_error"],
    "thresholds": {"interval_coverage": {"min": 0.5}},
}
DECISIONS = {**FEW, "decide": {"cost": {"fp": 1, "fn": 3}}, "fairness": {"column": "group"}}
WEIGHTED = {**FEW, "slices": ["size"], "metrics": ["auc", "binary_crossentropy", "calibration", "precision", "f1"]}
SIZES = {"size": [[0.75 * (at % 3)] for at in range(evaluator_tables.ROWS)]}
"""Weights of the rows. In the slice `size = 0` the weight of every row is 0."""
OF_QUANTILES = {"loss": "quantile", "quantiles": [0.1, 0.5, 0.8]}
DEVIANCE = {
    "slices": ["size"],
    "metrics": ["poisson_deviance", "tweedie_deviance_at_1.5"],
    "thresholds": {"poisson_deviance": {"max": 9}},
}
COUNTS = {"truth": [[float(at % 4)] for at in range(evaluator_tables.ROWS)]}
OWN_METRIC = "tensorflow_model_analysis.metrics.squared_pearson_correlation.SquaredPearsonCorrelation"


def assert_equal(ours: Evaluation, stock: Evaluation) -> None:
    """Compare all metrics, intervals and plots up to rounding.

    Sums of floats are added in another order. The tolerances are absolute as well, because TensorFlow fuses operations
    differently in a session and in a function, which may change the last bit of a prediction.
    """
    assert ours.metrics.keys() == stock.metrics.keys()
    for key, expected in stock.metrics.items():
        # TFMA computes the logarithm of every prediction in float32.
        assert ours.metrics[key] == pytest.approx(expected, rel=2e-6, abs=5e-7, nan_ok=True), key
    assert ours.plots.keys() == stock.plots.keys()
    for name, numbers in stock.plots.items():
        assert ours.plots[name] == pytest.approx(numbers, rel=1e-6, abs=5e-7), name
    assert (ours.config, ours.slices, ours.validated) == (stock.config, stock.slices, stock.validated)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation, Evaluation]:
    """Return the folder of BINARY_SETTING, then our evaluation and the stock evaluation."""
    folder = tmp_path_factory.mktemp("binary")
    return folder, *in_child(folder / "log", evaluator_tables.evaluate_with_both, folder, BINARY_SETTING)


@pytest.mark.extended
@pytest.mark.parametrize(
    "setting",
    [
        BINARY_SETTING,
        pytest.param(Setting("binary", FEW, baseline=False, stored="tfrecord"), marks=pytest.mark.slow),
        pytest.param(Setting("multiclass", MULTICLASS), marks=pytest.mark.slow),
        pytest.param(Setting("regression", REGRESSION), marks=pytest.mark.slow),
        pytest.param(Setting("regression", REGRESSION, own_code=True, baseline=False), marks=pytest.mark.slow),
        pytest.param(
            Setting("regression", QUANTILES, plan={**OF_QUANTILES, "weight": "size"}, replaced=SIZES),
            marks=pytest.mark.slow,
        ),
        pytest.param(Setting("binary", WEIGHTED, plan={"weight": "size"}, replaced=SIZES), marks=pytest.mark.slow),
        pytest.param(Setting("multiclass", MULTICLASS, plan={"weight": "size"}), marks=pytest.mark.slow),
        pytest.param(Setting("binary", DECISIONS, thresholds={"model": 0.375}), marks=pytest.mark.slow),
        pytest.param(
            Setting("regression", DEVIANCE, plan={"loss": "poisson"}, replaced=COUNTS), marks=pytest.mark.slow
        ),
    ],
    ids=[
        *("binary", "binary from TFRecords", "multiclass", "regression", "own code"),
        *("weighted quantiles", "weighted", "weighted multiclass", "decisions", "deviance"),
    ],
)
def test_everything_is_as_the_stock_executor_computes_it(
    setting: Setting, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if setting is BINARY_SETTING:
        _, ours, stock = request.getfixturevalue("binary")
    else:
        ours, stock = in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)
    assert_equal(ours, stock)
    assert not any("TFMA computes" in message or "TFX's own executor" in message for message in ours.messages)
    slices = {name for name, _ in ours.metrics}
    expected = {
        "binary": {"size=0.0"} if setting.section is WEIGHTED else {"group=b'a'", "group=b'c'"},
        "multiclass": {f"group={'é'.encode()}", "tags=b'y'"},
        "regression": {"size=1.5"},
    }
    assert {"", *expected[setting.task]} <= slices
    assert not any("never" in name for name in slices)
    if setting.section is BINARY:
        assert {"tags=b'x'", "group=b'c', tags=b'z'", "place=1"} <= slices
    metric_names = setting.section["metrics"]
    overall_keys = {key for name, key in ours.metrics if not name}
    assert all(any(f'name: "{name}"' in key for key in overall_keys) for name in metric_names)


@pytest.mark.extended
def test_slices_by_label_are_evaluated_and_worst_mistakes_are_written(tmp_path: Path) -> None:
    truth = [values[0] for values in evaluator_tables.table("multiclass")["truth"]]
    replaced = {"label": [[f"class {label}"] for label in truth], "path": [[f"{at}.png"] for at in range(len(truth))]}
    section = {**MULTICLASS, "slices": ["label"], "metrics": ["accuracy"], "worst_mistakes": 7}
    # The texts of this column are not valid images, so the mistakes do not have thumbnails.
    setting = Setting("multiclass", section, plan={"image_columns": ["group"]}, replaced=replaced)
    in_child(tmp_path / "log", evaluator_tables.write_inputs, tmp_path, setting)
    ours: Evaluation = in_child(tmp_path / "log", evaluator_tables.evaluate, tmp_path, setting)
    names = {name for name, _ in ours.metrics}
    assert names == {"", *(f"label={f'class {label}'.encode()}" for label in set(truth))}
    worst = mistakes.from_json((tmp_path / "ours" / "evaluation" / mistakes.FILE).read_text())
    assert len(worst) == 7
    probabilities = [mistake.probability for mistake in worst]
    assert probabilities == sorted(probabilities, reverse=True)
    for mistake in worst:
        assert mistake.label == str(truth[int(mistake.name.removesuffix(".png"))]) != mistake.prediction
        assert not mistake.thumbnail


@pytest.mark.extended
def test_metric_without_a_columnar_form_is_computed_row_by_row(tmp_path: Path) -> None:
    section = {**REGRESSION, "metrics": ["mean_squared_error", OWN_METRIC]}
    setting = Setting("regression", section)
    ours, stock = in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)
    assert_equal(ours, stock)
    assert any(f'name: "{OWN_METRIC}"' in key for _, key in ours.metrics)
    assert f"TFMA computes these metrics itself, row by row: {OWN_METRIC}" in ours.messages


@pytest.mark.slow
def test_unsupported_model_is_evaluated_by_the_stock_executor(tmp_path: Path) -> None:
    setting = Setting("binary", FEW, unknown_shape=True)
    ours, stock = in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)
    assert_equal(ours, stock)
    assert "TFX's own executor evaluates the model, because of predictions of unknown shape" in ours.messages


@pytest.mark.slow
def test_metrics_of_groups_are_rejected_if_the_stock_executor_is_used(tmp_path: Path) -> None:
    section = {**FEW, "group": "group", "metrics": ["auc", "gauc"]}
    setting = Setting("binary", section, unknown_shape=True)
    with pytest.raises(InputError, match=r"expect the columnar Evaluator, received TFX.s own executor"):
        in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)


@pytest.mark.slow
def test_lists_and_values_that_stand_for_missing_are_sent_as_serialized_examples(tmp_path: Path) -> None:
    scores: list[Any] = [[0.25, 0.75] if at % 2 else [math.nan] for at in range(evaluator_tables.ROWS)]
    setting = Setting("binary", FEW, baseline=False, replaced={"score": scores})
    ours, stock = in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)
    assert_equal(ours, stock)


@pytest.mark.slow
def test_results_do_not_depend_on_workers_or_the_job_service(
    binary: tuple[Path, Evaluation, Evaluation], tmp_path: Path
) -> None:
    folder, without_groups, _ = binary
    # The rows of a group are spread over several files, and some rows do not belong to a group.
    setting = Setting("binary", {**BINARY, "group": "group", "metrics": [*BINARY["metrics"], "gauc", "ndcg_at_3"]})
    with job_service(tmp_path / "service.log") as service:
        portable = ("--runner=PortableRunner", f"--job_endpoint={service.address}", "--environment_type=LOOPBACK")
        evaluations = []
        for number, beam in enumerate((setting.beam, tuple(direct.get_fork_options(2)), portable)):
            (folder / "ours").rename(tmp_path / f"earlier-{number}")
            setting_with_beam = dataclasses.replace(setting, beam=beam)
            evaluations.append(in_child(tmp_path / "log", evaluator_tables.evaluate, folder, setting_with_beam))
    expected, *other_evaluations = evaluations
    for evaluation in other_evaluations:
        assert_equal(evaluation, expected)
    group_metrics = {key: values for key, values in expected.metrics.items() if "gauc" in key[1] or "ndcg" in key[1]}
    assert expected.metrics.keys() - group_metrics.keys() == without_groups.metrics.keys()
    overall_values = [values for (name, key), values in group_metrics.items() if not name and "is_diff" not in key]
    assert len(overall_values) == 4
    assert all(0 < value < 1 for value, *_ in overall_values)


def test_row_without_a_weight_is_reported(tmp_path: Path) -> None:
    weights: list[Any] = [None if at == 7 else [1] for at in range(evaluator_tables.ROWS)]
    setting = Setting("binary", FEW, baseline=False, plan={"weight": "size"}, replaced={"size": weights})
    with pytest.raises(InputError, match=r"data\.weight: expected a non-negative number in each row of 'size'"):
        in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)


def test_row_without_a_label_is_reported(tmp_path: Path) -> None:
    labels: list[Any] = [None if at == 7 else [1] for at in range(evaluator_tables.ROWS)]
    setting = Setting("binary", BINARY, own_code=True, replaced={"truth": labels})
    with pytest.raises(InputError, match="label truth: expected one value in each row, received a row with 0"):
        in_child(tmp_path / "log", evaluator_tables.evaluate_with_both, tmp_path, setting)
