"""The choice of the kind of model among fitted candidates, and the rows that they are fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.ingest.split_assignment import assign_by_hash
from components.models.config import Kind
from pipeline.authoring.scaffold import defaults, kind_choice
from pipeline.authoring.scaffold.kind_choice import Difference, Fit
from pipeline.authoring.scaffold.sample import Table

ROWS = 400


def fit(kind: Kind, above: float, noise: float = 0.0) -> Fit:
    """Return a candidate whose losses are above those of every other one by so much, with noise of its own."""
    common = np.random.default_rng(1).exponential(1.0, ROWS)
    own = np.random.default_rng(len(kind)).normal(0, noise, ROWS) if noise else np.zeros(ROWS)
    return Fit(kind, (common + above + own - own.mean()).astype(np.float32), {"auc": 0.8})


def test_noise_is_that_of_pairs_of_rows() -> None:
    mean, error = Difference.of(fit("tabm", 0.3, 0.2), fit("gbt", 0.1))
    assert mean == pytest.approx(0.2, abs=1e-6)
    assert error == pytest.approx(0.2 / ROWS**0.5, rel=0.1, abs=1e-4), "what both have in common does not count"


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        ([fit("linear", 0.1)], "ensemble"),
        ([fit("linear", -0.03, 0.5)], "ensemble"),
        ([fit("linear", -0.1, 0.5)], "linear"),
        ([fit("gbt", -0.1), fit("linear", -0.2)], "linear"),
        # All the weight of the ensemble is on the trees.
        ([fit("gbt", 0.0005)], "gbt"),
        ([fit("gbt", 0.0005, 0.1)], "ensemble"),
        ([fit("gbt", 0.002)], "ensemble"),
        ([fit("tabm", -0.3), fit("gbt", -0.3)], "gbt"),
    ],
)
def test_kind_for_the_size_remains_unless_another_one_is_better_by_more_than_noise(
    others: list[Fit], kind: str
) -> None:
    own = fit("ensemble", 0.0)
    assert kind_choice.choose([own, *others], own).kind == kind


def test_candidates_follow_from_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(kind: Kind, rows: int) -> tuple[Kind, ...]:
        return defaults.candidates(defaults.TrainingDefaults({}, {"kind": kind}, {}, {}, [], "", "", ""), rows)

    assert of("ensemble", 10_000) == ("ensemble", "linear")
    assert of("dcn_v2", 10_000) == ("ensemble", "linear", "dcn_v2")
    assert of("tabm", 300_000) == ("tabm", "linear")
    assert of("dcn_v2", 3_000_000) == ("tabm", "linear", "dcn_v2")


@pytest.mark.parametrize(
    ("rows", "seconds", "fitted"),
    [(500, 60, 500), (50_000, 60, 20_000), (50_000, 30, 10_000), (200_000, 60, 20_000), (200_001, 60, 0)],
)
def test_rows_follow_from_the_budget_and_are_a_tenth_at_least(rows: int, seconds: float, fitted: int) -> None:
    assert kind_choice.fitted_rows(rows, seconds) == fitted


def test_rows_of_the_configs_eval_split_are_not_fitted(tmp_path: Path) -> None:
    values = np.random.default_rng(2).normal(size=ROWS).astype(np.float32)
    columns = {"x": pa.array(values), "none": pa.nulls(ROWS), "y": pa.array([b"a", b"b"] * (ROWS // 2), pa.binary())}
    table = Table(columns, ROWS, 0, None, 1, "csv")
    file = str(tmp_path / "rows.parquet")
    assert kind_choice.write_rows(table, 300, file) == 300
    written = pq.read_table(file)
    assert written.column_names == ["x", "y"]
    order = [values.tolist().index(each) for each in written["x"].to_pylist()]
    assert order == sorted(set(order)), "in their order, each once"
    [batch] = written.combine_chunks().to_batches()
    split = defaults._SPLIT
    judged = assign_by_hash(batch, list(split.values())) == list(split).index("eval")
    assert 30 < judged.sum() < 90
    left_out = assign_by_hash(batch, list(defaults.FITTED_SPLIT.values())) == list(defaults.FITTED_SPLIT).index("test")
    assert (judged == left_out).all()
