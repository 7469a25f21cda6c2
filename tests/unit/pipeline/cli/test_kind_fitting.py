"""Tests for the choice of the model's kind in a drafted config, after candidates were fitted or have failed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.ingest import readers
from components.models.config import WITHOUT_NETWORK, Kind
from pipeline.authoring.config import load
from pipeline.authoring.scaffold import Draft, draft
from pipeline.authoring.scaffold.kind_choice import Fit
from pipeline.cli import kind_fitting
from pipeline.cli.kind_fitting import Fitting
from pipeline.orchestration import candidates
from pipeline.orchestration.candidates import Candidate


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Draft:
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    values = np.random.default_rng(2).normal(size=200)
    path.write_text("x,y\n" + "".join(f"{value:.3f},{int(value > 0)}\n" for value in values))
    return draft([str(path)], "y")


def make_fit(kind: Kind, loss: float, seconds: float | None = 1.0) -> Fit:
    return Fit(kind, np.full(40, loss, np.float32), {"auc": 0.9}, seconds)


def write_config(drafted_config: Draft, folder: Path) -> tuple[str, Kind]:
    """Write the config of a draft, check that it is valid, and return its text and its kind."""
    file = folder / "rows.yaml"
    file.write_text(drafted_config.config("schema.pbtxt"))
    return file.read_text(), load(str(file)).config.model.kind


def test_config_contains_the_chosen_kind_and_the_losses(drafted: Draft, tmp_path: Path) -> None:
    fits = [make_fit("gbt", 0.2, None), make_fit("tabm", 0.3, None), make_fit("ensemble", 0.2), make_fit("linear", 0.4)]
    text, kind = write_config(kind_fitting._choose_kind(drafted, fits, ()), tmp_path)
    assert kind == "gbt"
    assert "model: # the lowest loss on 40 rows that were not trained on\n" in text
    assert "  # linear: loss 0.4000, above the lowest by 0.2000 ± 0.0000\n  # gbt: loss 0.2000, the lowest\n" in text


@pytest.mark.parametrize(
    ("gbt", "why"),
    [
        (0.2, "the lowest loss on 40 rows that were not trained on"),
        (0.20001, "as good as the lowest loss on 40 rows that were not trained on, and simpler"),
    ],
)
def test_config_contains_the_reason_for_the_choice(gbt: float, why: str, drafted: Draft, tmp_path: Path) -> None:
    text, kind = write_config(
        kind_fitting._choose_kind(drafted, [make_fit("gbt", gbt), make_fit("ensemble", 0.2)], ()), tmp_path
    )
    assert kind == "gbt"
    assert f"model: # {why}\n" in text


def test_noisy_difference_does_not_change_the_default_kind(drafted: Draft, tmp_path: Path) -> None:
    noisy = Fit("linear", np.array([0.0, 0.3] * 20, np.float32), {}, 1.0)
    text, kind = write_config(kind_fitting._choose_kind(drafted, [noisy, make_fit("ensemble", 0.16)], ()), tmp_path)
    assert kind == "ensemble"
    assert "of this size; no other kind's loss is lower by more than noise on 40 rows" in text


def test_kind_that_was_not_fitted_is_chosen_only_if_none_was(drafted: Draft, tmp_path: Path) -> None:
    failures: tuple[tuple[Kind, str], ...] = (("ensemble", "did not end in time"),)
    text, kind = write_config(kind_fitting._choose_kind(drafted, [], failures), tmp_path)
    assert kind == "ensemble"
    assert "on our benchmarks of this size; it was not fitted: did not end in time\n" in text
    fits = [make_fit("linear", 0.3), make_fit("gbt", 0.1)]
    text, kind = write_config(kind_fitting._choose_kind(drafted, fits, failures), tmp_path)
    assert kind == "gbt"
    assert "not trained on; ensemble was not fitted: did not end in time\n" in text


def test_budget_includes_the_time_before_the_fitting(
    drafted: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(drafted, tmp_path)
    received: list[float] = []

    def fit_nothing(configs: Any, logs: Path, seconds: float, report: Any) -> dict[Kind, Candidate]:
        received.append(seconds)
        return {kind: Candidate() for kind in configs}

    monkeypatch.setattr(candidates, "fit", fit_nothing)
    kind_fitting.fit(drafted, tmp_path / "rows.yaml", budget=60, deadline=time.monotonic() + 40)
    assert 0 < received[0] < 40


def test_sample_is_read_without_number_formats(drafted: Draft, tmp_path: Path) -> None:
    write_config(drafted, tmp_path)
    config = load(str(tmp_path / "rows.yaml")).config
    csv = config.data.csv.model_copy(update={"formats": {"price": "currency"}})
    config = config.model_copy(update={"data": config.data.model_copy(update={"csv": csv})})
    pq.write_table(pa.table({"price": [2423.0]}), tmp_path / "rows.parquet")
    fitted = kind_fitting._make_config(config, drafted, "linear", 1, str(tmp_path / "rows.parquet"), str(tmp_path))
    reader = readers.reader(fitted.data.ingest("parquet"), [str(tmp_path / "rows.parquet")])
    assert not reader.properties.encoding


def test_table_contains_failed_candidates(drafted: Draft) -> None:
    [table] = kind_fitting.make_tables(Fitting(drafted, (make_fit("gbt", 0.2, None),), (("linear", "out of memory"),)))
    assert [list(column.cells) for column in table.columns] == [
        ["gbt", "linear"],
        ["0.2000", "-"],
        ["the lowest", "out of memory"],
        ["0.9", ""],
        ["as a part", ""],
    ]
    assert not list(kind_fitting.make_tables(Fitting(drafted)))


@pytest.mark.parametrize(
    "kind", ["linear", "gbt", "gbt_linear", "tabm", "ensemble", "dcn_v2", "wide_deep", "mlp", "dlrm"]
)
def test_every_kind_has_a_valid_config(
    kind: Kind, drafted: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._FEW_ROWS", 0)
    text, written_kind = write_config(drafted.with_kind(kind, "chosen by --kind"), tmp_path)
    assert written_kind == kind
    assert "model: # chosen by --kind\n" in text
    assert ("\ntraining:" in text) == (kind not in WITHOUT_NETWORK)
