"""Tests that simulated clicks have the documented distributions, and that the true probabilities fit the labels."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from sklearn.metrics import roc_auc_score

from data import clicks
from data.clicks import MISSING, ROWS_PER_ID, ZERO_PRICE, ZIPF, Impressions, best_auc, truth_path
from data.tables import BLOCK

ROWS = 200_000
MISSING_IS_MISSING = csv.ConvertOptions(strings_can_be_null=True)


@pytest.fixture(scope="module")
def log():
    return Impressions(ROWS, seed=0).make_rows_and_truth(0, ROWS)


@pytest.fixture(scope="module")
def impressions(log):
    return log[0]


@pytest.fixture(scope="module")
def truth(log):
    return log[1]["probability"].to_numpy()


@pytest.fixture(scope="module")
def clicked(impressions):
    return impressions["clicked"].to_numpy()


@pytest.mark.parametrize("kind", ["user", "item", "site"])
def test_ids_follow_their_zipf_distribution(impressions, kind):
    counts = np.sort(impressions[kind].drop_null().value_counts().field("counts").to_numpy())[::-1]
    shares = np.arange(1.0, ROWS // ROWS_PER_ID[kind] + 1) ** -ZIPF[kind]
    shares /= shares.sum()
    for head in (1, 10, len(shares) // 100, len(shares) // 10):
        assert counts[:head].sum() / counts.sum() == pytest.approx(shares[:head].sum(), rel=0.05, abs=1e-5)
    assert len(counts) > 0.95 * len(shares)
    assert len(counts) <= len(shares)


def test_full_size_has_a_million_ids():
    assert sum(10_000_000 // rows for rows in ROWS_PER_ID.values()) == pytest.approx(1e6, abs=50_000)


def test_id_numbers_are_independent_of_frequency(impressions):
    counted = impressions["item"].value_counts()
    numbers = np.array([int(item[1:]) for item in counted.field("values").to_pylist()])
    rank = np.argsort(np.argsort(counted.field("counts").to_numpy()))
    assert abs(np.corrcoef(numbers, rank)[0, 1]) < 0.05


def test_share_of_missing_values_is_as_documented(impressions):
    for name in impressions.schema.names:
        assert impressions[name].null_count / ROWS == pytest.approx(MISSING.get(name, 0), abs=0.003), name


def test_numbers_are_in_their_ranges(impressions):
    assert set(impressions["hour"].unique().to_pylist()) == set(range(24))
    assert set(impressions["banner_position"].unique().to_pylist()) == set(range(8))
    assert set(impressions["clicked"].unique().to_pylist()) == {0, 1}
    assert impressions["idle_hours"].drop_null().to_numpy().min() >= 0


def test_price_is_often_zero_and_heavy_tailed(impressions):
    price = impressions["price"].drop_null().to_numpy()
    assert np.mean(price == 0) == pytest.approx(ZERO_PRICE, abs=0.005)
    positive = price[price > 0]
    assert np.quantile(positive, 0.999) > 50 * np.median(positive)


def test_click_rate_is_plausible_for_advertisements(clicked):
    assert 0.10 < clicked.mean() < 0.20


def test_true_probabilities_are_calibrated(truth, clicked):
    parts = np.array_split(np.argsort(truth), 20)
    expected = np.array([truth[part].mean() for part in parts])
    happened = np.array([clicked[part].mean() for part in parts])
    error = np.sqrt(expected * (1 - expected) / (ROWS / 20))
    assert np.all(np.abs(happened - expected) < 4 * error)


def test_best_auc_is_high_but_not_perfect(truth, clicked):
    assert 0.75 < best_auc(truth, clicked) < 0.85


def test_best_auc_equals_scikit_learn(truth, clicked):
    assert best_auc(truth, clicked) == pytest.approx(roc_auc_score(clicked, truth), abs=1e-12)
    coarse = np.round(truth, 1)
    assert best_auc(coarse, clicked) == pytest.approx(roc_auc_score(clicked, coarse), abs=1e-12)


def test_best_auc_of_one_class_is_nan():
    assert math.isnan(best_auc(np.array([0.2, 0.4]), np.array([0, 0])))
    assert math.isnan(best_auc(np.array([0.2, 0.4]), np.array([1, 1])))


def test_users_have_different_tastes(impressions, truth):
    """Without tastes, the log-odds of two users would differ by the same amount for every item."""
    log_odds = np.log(truth / (1 - truth))
    plain = Impressions(ROWS, seed=0)
    user, item = (np.repeat(np.arange(200, dtype=np.int64), 200), np.tile(np.arange(200, dtype=np.int64), 200))
    site = np.zeros_like(user)
    known = {"site": np.zeros(len(user), dtype=bool)}
    effect = plain._id_effects({"user": user, "item": item, "site": site}, known).reshape(200, 200)
    interaction_effect = effect - effect.mean(axis=0) - effect.mean(axis=1, keepdims=True) + effect.mean()
    assert 0.4 < interaction_effect.std() < 0.8
    assert log_odds.std() > interaction_effect.std()


def test_slice_can_be_created_separately(log):
    again = Impressions(ROWS, seed=0)
    for start, stop in ((0, 1), (17, 4_000), (BLOCK - 1, BLOCK + 2)):
        for part, whole in zip(again.make_rows_and_truth(start, stop), log, strict=True):
            assert part.equals(whole.slice(start, stop - start))


def test_another_seed_gives_another_log(impressions):
    assert not Impressions(ROWS, seed=1).make_rows(0, 100).equals(impressions.slice(0, 100))


def test_files_contain_the_simulated_rows_without_the_truth(tmp_path, capsys):
    output = tmp_path / "clicks.csv"
    assert clicks.main(["--rows", "20_000", "--seed", "5", "--output", str(output)]) == 0
    rows = csv.read_csv(output, convert_options=MISSING_IS_MISSING)
    truth = csv.read_csv(truth_path(output))
    log = Impressions(20_000, seed=5)
    assert rows.equals(log.make_rows(0, 20_000))
    assert truth.equals(log.make_truth(0, 20_000))
    assert rows.schema.names == clicks.SCHEMA.names
    auc = best_auc(truth["probability"].to_numpy(), rows["clicked"].to_numpy())
    assert f"20,000 rows, {output.stat().st_size:,} bytes" in (line := capsys.readouterr().out)
    assert line.endswith(f"best AUC {auc:.4f}\n")


def test_parquet_holds_the_same_rows(tmp_path):
    assert clicks.main(["--rows", "1000", "--output", str(tmp_path / "clicks.csv"), "--parquet"]) == 0
    log = Impressions(1000, seed=0)
    for name, table in (("clicks", log.make_rows(0, 1000)), ("clicks.truth", log.make_truth(0, 1000))):
        with pa.parquet.ParquetFile(tmp_path / f"{name}.parquet") as file:
            assert file.read(use_threads=False).equals(table)


def test_second_call_only_writes_missing_files(tmp_path, capsys):
    output = tmp_path / "clicks.csv"
    arguments = ["--rows", "1000", "--output", str(output)]
    clicks.main(arguments)
    rows, truth, inode = output.read_bytes(), truth_path(output).read_bytes(), output.stat().st_ino
    assert clicks.main(arguments) == 0
    assert output.stat().st_ino == inode
    assert "nothing to do" in capsys.readouterr().out
    truth_path(output).unlink()
    assert clicks.main(arguments) == 0
    assert (output.read_bytes(), truth_path(output).read_bytes()) == (rows, truth)
    assert clicks.main([*arguments, "--seed", "1"]) == 0
    assert output.read_bytes() != rows


def test_log_of_a_single_row_can_be_written(tmp_path):
    assert clicks.main(["--rows", "1", "--output", str(tmp_path / "clicks.csv")]) == 0


def test_another_suffix_is_rejected(tmp_path, capsys):
    assert clicks.main(["--rows", "10", "--output", str(tmp_path / "clicks.json")]) == 2
    assert "expected a name that ends in .csv or .parquet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
