"""A run with row weights and a quantile loss: wrong labels with weight 0 do not count anywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv

from tests.support.data import people
from tests.support.runs.command import Runs, command

pytestmark = pytest.mark.e2e


@pytest.mark.slow
def test_rows_of_weight_0_change_neither_model_nor_verdict(weighted: Runs) -> None:
    ended = weighted.first
    assert (ended.exit_code, ended.result["verdict"]) == (0, "blessed"), ended.out or ended.err
    metrics = ended.result["metrics"]
    assert 0.6 < metrics["interval_coverage"] < 0.95
    # A third of the labels are wrong by 50; the others have a standard deviation of 0.2 around the true mean.
    assert metrics["mean_absolute_error"] < 0.5
    assert metrics["interval_width"] < 2


def test_statistics_are_weighted(weighted: Runs) -> None:
    assert weighted.first.exit_code == 0, weighted.first.out or weighted.first.err
    [folder] = (weighted.output / "artifacts" / "StatisticsGen" / "statistics").iterdir()
    (dataset,) = tfdv.load_stats_binary(str(folder / "Split-train" / "FeatureStats.pb")).datasets
    spent = next(feature for feature in dataset.features if feature.path.step[0] == "spent")
    assert spent.num_stats.weighted_numeric_stats.mean == pytest.approx(3.5, abs=0.5)
    assert spent.num_stats.mean > 15
    # Two thirds of the rows have the weight 1.5 or 2.5.
    assert dataset.weighted_num_examples == pytest.approx(dataset.num_examples * 4 / 3, rel=0.1, abs=1)


def test_served_quantiles_do_not_cross_and_need_no_weight(weighted: Runs) -> None:
    assert weighted.first.exit_code == 0, weighted.first.out or weighted.first.err
    model = tf.saved_model.load(str(Path(weighted.first.result["pushed"])))
    assert set(model.signatures["raw"].structured_input_signature[1]) == {"hours"}
    hours = np.arange(10, 60)
    answers = model.signatures["raw"](hours=tf.constant(hours, tf.int64))
    assert answers["quantiles"].shape == (50, 3)
    assert (np.diff(answers["quantiles"], axis=1) >= 0).all()
    np.testing.assert_array_equal(answers["prediction"], answers["quantiles"][:, 1:2])
    np.testing.assert_allclose(answers["prediction"][:, 0], hours / 10, atol=1)


def test_negative_weight_ends_the_run_with_the_number_of_rows(tmp_path: Path) -> None:
    table = [{**row, "weight": -1 if at < 3 else 1} for at, row in enumerate(people.rows(200))]
    config = people.write_config(
        tmp_path / "people.yaml",
        people.write(tmp_path / "people.csv", table),
        data={**people.CONFIG["data"], "weight": "weight"},
    )
    ended = command("--local", "--config", str(config), "--to", "StatisticsGen", "--output", str(tmp_path / "out"))
    assert ended.exit_code == 2
    assert (
        "data.weight: expected a non-negative number in each row of 'weight', received a negative number" in ended.out
    )
