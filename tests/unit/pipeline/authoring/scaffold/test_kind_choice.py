"""Tests for the choice of the model's kind among fitted candidates, and for the rows that they are fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.base.config_section import Task
from components.ingest.split_assignment import assign_by_hash
from components.models.config import Kind
from pipeline.authoring.scaffold import defaults, kind_choice
from pipeline.authoring.scaffold.defaults import TableSize
from pipeline.authoring.scaffold.kind_choice import Difference, Fit
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table

ROWS = 400


def make_fit(kind: Kind, above: float, noise: float = 0.0) -> Fit:
    """Return a fitted candidate. All candidates share a random loss per row, so only the arguments differ.

    Args:
      kind: Kind of the model.
      above: Number that is added to the common loss of all rows.
      noise: Standard deviation of noise that only this candidate has.
    """
    common = np.random.default_rng(1).exponential(1.0, ROWS)
    individual = np.random.default_rng(len(kind)).normal(0, noise, ROWS) if noise else np.zeros(ROWS)
    return Fit(kind, (common + above + individual - individual.mean()).astype(np.float32), {"auc": 0.8})


def test_noise_is_computed_from_paired_rows() -> None:
    mean, error = Difference.of(make_fit("tabm", 0.3, 0.2), make_fit("gbt", 0.1))
    assert mean == pytest.approx(0.2, abs=1e-6)
    assert error == pytest.approx(0.2 / ROWS**0.5, rel=0.1, abs=1e-4), "what both have in common does not count"


@pytest.mark.parametrize(
    ("candidates", "kind"),
    [
        ([make_fit("linear", 0.1)], "ensemble"),
        ([make_fit("linear", -0.03, 0.5)], "ensemble"),
        ([make_fit("linear", -0.1, 0.5)], "linear"),
        ([make_fit("gbt", -0.1), make_fit("linear", -0.2)], "linear"),
        # The loss of the trees is only negligibly higher, so the simpler kind is chosen.
        ([make_fit("gbt", 0.0005)], "gbt"),
        ([make_fit("gbt", 0.0005, 0.1)], "ensemble"),
        ([make_fit("gbt", 0.002)], "ensemble"),
        ([make_fit("tabm", -0.3), make_fit("gbt", -0.3)], "gbt"),
    ],
)
def test_default_kind_is_kept_unless_another_kind_is_significantly_better(candidates: list[Fit], kind: str) -> None:
    default = make_fit("ensemble", 0.0)
    assert kind_choice.choose([default, *candidates], default).kind == kind


def test_candidates_depend_on_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_candidates(kind: Kind, rows: int) -> tuple[Kind, ...]:
        return defaults.candidates(
            defaults.TrainingDefaults({}, {"kind": kind}, {}, {}, [], "", "", "", TableSize(rows, 9)),
            rows,
            rows > 5_000,
        )

    assert list_candidates("ensemble", 1_500) == ("ensemble", "linear")
    assert list_candidates("ensemble", 10_000) == ("gbt_linear", "linear", "ensemble")
    assert list_candidates("dcn_v2", 10_000) == ("gbt_linear", "linear", "ensemble", "dcn_v2")
    assert list_candidates("tabm", 300_000) == ("linear", "tabm")
    assert list_candidates("dcn_v2", 3_000_000) == ("linear", "tabm", "dcn_v2")


@pytest.mark.parametrize(
    ("rows", "seconds", "fitted"),
    [(500, 60, 500), (50_000, 60, 20_000), (50_000, 30, 10_000), (200_000, 60, 20_000), (200_001, 60, 0)],
)
def test_sample_depends_on_the_budget_and_must_be_a_tenth_of_the_rows(rows: int, seconds: float, fitted: int) -> None:
    assert kind_choice.fitted_rows(rows, seconds) == fitted


@pytest.mark.parametrize(
    ("task", "classes", "most"), [("binary", 2, 20_000), ("regression", 0, 20_000), ("multiclass", 10, 2_000)]
)
def test_few_rows_get_several_forests(task: Task, classes: int, most: int) -> None:
    counts = {str(number): 9 for number in range(classes)}
    learning_task = LearningTask("y", task, ("y",), np.zeros(9), counts, ())
    sizes = [TableSize(rows, columns) for rows, columns in ((most, 15), (most + 1, 15), (most, 16))]
    for kind in ("gbt", "ensemble"):
        models = [defaults.sections(kind, size, learning_task)[0] for size in sizes]
        assert [model.get("forests") for model in models] == [4, None, None]
    assert "forests" not in defaults.sections("tabm", TableSize(100, 15), learning_task)[0]


def test_few_rows_are_a_quarter_of_those_of_the_budget() -> None:
    assert [kind_choice.has_few_rows(rows, 30, 60) for rows in (5_000, 5_001)] == [True, False]
    assert [kind_choice.has_few_rows(rows, 100, 12) for rows in (1_000, 1_001)] == [True, False]
    assert [kind_choice.has_few_rows(rows, 800, 60) for rows in (625, 626)] == [True, False], "wide tables take longer"


def test_candidates_are_not_fitted_to_rows_of_the_eval_split(tmp_path: Path) -> None:
    values = np.random.default_rng(2).normal(size=ROWS).astype(np.float32)
    columns = {"x": pa.array(values), "none": pa.nulls(ROWS), "y": pa.array([b"a", b"b"] * (ROWS // 2), pa.binary())}
    table = Table(columns, ROWS, 0, None, 1, "csv")
    file = str(tmp_path / "rows.parquet")
    assert kind_choice.write_rows(table, 300, file) == 300
    written = pq.read_table(file)
    assert written.column_names == ["x", "y"]
    order = [values.tolist().index(value) for value in written["x"].to_pylist()]
    assert order == sorted(set(order)), "in their order, each once"
    [batch] = written.combine_chunks().to_batches()
    split = defaults._SPLIT
    is_eval = assign_by_hash(batch, list(split.values())) == list(split).index("eval")
    assert 30 < is_eval.sum() < 90
    is_left_out = assign_by_hash(batch, list(defaults.FITTED_SPLIT.values())) == list(defaults.FITTED_SPLIT).index(
        "test"
    )
    assert (is_eval == is_left_out).all()
