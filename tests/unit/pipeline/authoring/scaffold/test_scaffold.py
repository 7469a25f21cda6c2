"""Tests for configs that are drafted from different tables. All drafts must be valid and must fit the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.base.config_section import Task
from components.base.errors import InputError
from components.data_gate import schema_columns as schemas
from components.features.config import OPS
from components.models.config import WITHOUT_NETWORK
from pipeline.authoring import scaffold
from pipeline.authoring.config import Config, load
from pipeline.authoring.scaffold import Draft, decisions, draft
from pipeline.authoring.scaffold.kind_choice import Fit
from pipeline.authoring.scaffold.schema import schema
from tests.support.data.scaffold_tables import ROWS, TABLES, Rows, codes, houses, random, write_rows


def draft_table(name: str, folder: Path) -> tuple[Draft, Config]:
    make, label = TABLES[name]
    drafted = draft([write_rows(name, make(), folder)], label)
    config = folder / "drafted.yaml"
    config.write_text(drafted.config("schema.pbtxt"))
    return drafted, load(str(config)).config


def list_ops(config: Config, column: str) -> list[str]:
    return [op.op for op in config.features.columns[column]]


@pytest.mark.parametrize("name", TABLES)
def test_draft_is_a_valid_config_with_a_comment_on_every_column(name: str, tmp_path: Path) -> None:
    drafted, config = draft_table(name, tmp_path)
    text = drafted.config("schema.pbtxt")
    commented = {line.split(":")[0].strip(" #") for line in text.splitlines() if "#" in line}
    assert set(drafted.columns) <= commented
    assert set(config.features.columns) == set(drafted.features)
    assert {op.op for column in config.features.columns.values() for op in column} <= set(OPS)
    assert max(map(len, text.splitlines())) < 250


def test_skewed_numbers_and_missing_values_are_recognized(tmp_path: Path) -> None:
    drafted, config = draft_table("people", tmp_path)
    assert config.data.csv.skip_initial_space
    assert config.data.csv.null_values == ("", "?")
    assert (config.data.label, config.data.task) == ("income == '>50K'", "binary")
    assert list_ops(config, "Capital_Gain") == ["z_score", "log", "piecewise_linear"]
    assert list_ops(config, "job") == ["vocab"]
    assert drafted.table.columns["job"].null_count > 0
    assert set(drafted.columns) - set(drafted.features) == {"country", "income"}
    assert config.model.kind == "ensemble"


def test_folds_are_used_only_for_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._FEW_ROWS", 50)
    _, config = draft_table("flowers", tmp_path)
    assert (config.training.folds, config.model.members) == (None, 8)


def test_small_table_gets_few_bins_and_early_stopping(tmp_path: Path) -> None:
    _, config = draft_table("flowers", tmp_path)
    assert config.data.task == "multiclass"
    assert config.features.columns["width"][1].model_dump()["bins"] == 4
    training = config.training
    assert training.early_stopping == 12
    assert (training.folds, config.model.members) == (5, 4)
    assert training.checkpoint.every_steps == 20, "no evaluation after each of the few steps of an epoch"
    assert training.steps == 2 * 12 * 20, "the ceiling lets early stopping decide"
    # The bound is the accuracy of always predicting the most frequent class.
    assert config.evaluation.thresholds["accuracy"].min == pytest.approx(0.35, abs=0.1)


def test_many_ids_get_another_model_and_a_separate_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._MANY_IDS", 50)
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._LEAST_STEPS", 1)
    chance = random()
    user_ids = chance.integers(0, 100, 3 * ROWS)
    rows = {
        "user": [f"u{user_id}" for user_id in user_ids],
        "clicked": (user_ids + chance.normal(0, 30, len(user_ids)) > 50).astype(int),
    }
    with_many_ids = draft([write_rows("ids", rows, tmp_path)], "clicked")
    (tmp_path / "drafted.yaml").write_text(with_many_ids.config("schema.pbtxt"))
    config = load(str(tmp_path / "drafted.yaml")).config
    assert config.model.kind == "dcn_v2"
    assert config.training.table_learning_rate == 0.05
    passes = config.training.steps * config.training.batch_size / (3 * ROWS * 0.8)
    assert passes == pytest.approx(1, abs=0.1)
    assert draft_table("people", tmp_path)[1].training.table_learning_rate is None


def test_trees_are_not_chosen_for_large_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._MOST_OF_TREES", 100)
    config = draft_table("people", tmp_path)[1]
    assert config.model.kind == "tabm"
    assert config.training.early_stopping


def test_bound_of_a_regression_is_the_variance_of_the_label(tmp_path: Path) -> None:
    drafted, config = draft_table("houses", tmp_path)
    assert config.data.csv.delimiter == ";"
    assert config.data.task == "regression"
    assert set(config.features.columns) == {"size", "rooms"}
    variance = np.var(houses()["price"])
    assert config.evaluation.thresholds["mean_squared_error"].max == pytest.approx(variance, rel=0.01, abs=1e-3)
    reasons = {name: getattr(drafted.columns[name], "why", "") for name in ("house_id", "price_in_thousands", "remark")}
    assert "identifier" in reasons["house_id"]
    assert "copy of the label" in reasons["price_in_thousands"]
    assert "no value" in reasons["remark"]


def test_parts_of_a_time_that_vary_are_features(tmp_path: Path) -> None:
    drafted, config = draft_table("trips", tmp_path)
    assert config.features.columns["began"][0].model_dump()["parts"] == ("month", "day", "weekday", "hour")
    assert config.features.columns["ended_at"][0].model_dump()["unit"] == "seconds"
    assert config.features.columns["tags"][0].model_dump()["separator"] == "|"
    assert list_ops(config, "comment") == ["text"]
    assert list_ops(config, "km") == ["z_score", "log", "piecewise_linear", "missing"]
    assert set(drafted.columns) - set(drafted.features) == {"trip", "tip"}, "the fare alone tells little of the label"


def test_every_code_gets_a_bin_and_a_numeric_label_becomes_a_comparison(tmp_path: Path) -> None:
    drafted, config = draft_table("codes", tmp_path)
    assert (config.data.label, config.data.task) == ("outcome == 2", "binary")
    assert config.features.columns["zone"][1].model_dump()["bins"] == 28
    assert list_ops(config, "flag") == ["z_score"]
    assert "same" not in drafted.features


def test_lists_of_texts_are_split_and_lists_of_numbers_are_excluded(tmp_path: Path) -> None:
    drafted, config = draft_table("lists", tmp_path)
    assert list_ops(config, "seen") == ["split"]
    assert "vector" not in drafted.features
    assert config.data.label == "bought"
    assert list_ops(config, "when") == ["date_parts"]


def test_earlier_values_of_a_column_are_recognized_as_a_history(tmp_path: Path) -> None:
    _, config = draft_table("visits", tmp_path)
    assert (list_ops(config, "page"), list_ops(config, "topic")) == (["vocab"], ["vocab"])
    [pages], [topics], [times] = (config.features.columns[f"past_{name}"] for name in ("pages", "topics", "times"))
    most = {"max_values": 5}
    assert pages.model_dump(exclude_defaults=True) == {**most, "of": "page"}
    assert topics.model_dump(exclude_defaults=True) == {**most, "of": "topic", "along": "past_pages"}
    assert times.model_dump(exclude_defaults=True) == {**most, "until": "time", "along": "past_pages"}
    assert list_ops(config, "tags") == ["split"]
    assert config.model.kind == "din"


def test_kinds_for_histories_require_a_history(tmp_path: Path) -> None:
    drafted, _ = draft_table("visits", tmp_path)
    assert drafted.with_kind("bst", "chosen by --kind").defaults.model["kind"] == "bst"
    drafted, _ = draft_table("lists", tmp_path)
    with pytest.raises(InputError, match="din expects a column with lists of another column's earlier values"):
        drafted.with_kind("din", "chosen by --kind")


@pytest.mark.both_lines
@pytest.mark.parametrize("name", ["houses", "people", "lists", "visits"])
def test_schema_has_all_columns_and_requires_complete_columns(name: str, tmp_path: Path) -> None:
    drafted, _ = draft_table(name, tmp_path)
    path = tmp_path / "schema.pbtxt"
    path.write_text(schema(drafted.table))
    schema_columns = schemas.read(str(path))
    assert list(drafted.columns) == sorted(schema_columns, key=list(drafted.columns).index)
    complete = {column for column, values in drafted.table.columns.items() if not values.null_count}
    # A column that is nearly complete must be present in nearly as many rows. A column without values is optional.
    assert complete <= {column for column, domain in schema_columns.items() if domain.required}
    assert "remark" not in schema_columns or not schema_columns["remark"].required


def test_large_table_is_sampled_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.sample._SAMPLE_ROWS", 200)
    drafted, _ = draft_table("codes", tmp_path)
    assert drafted.table.rows == ROWS
    assert 50 < drafted.table.sampled <= 200
    zones = drafted.table.columns["zone"].to_pylist()
    assert zones != codes()["zone"][: len(zones)].tolist(), "by chance, not the first ones"
    assert f"600 rows in 1 file, from a sample of {drafted.table.sampled}." in drafted.config("s")


@pytest.mark.parametrize(
    ("rows", "label", "task", "message"),
    [
        ({"a": [1, 2, 3], "y": [1, 1, 1]}, "y", None, "'y' is the same in all 3 rows"),
        ({"a": [1, 2, 3], "y": [1, None, 0]}, "y", None, "'y' is missing in 1 of 3 rows[^$]*--label a comparison"),
        (
            {"a": range(400), "y": [row % 40 for row in range(400)]},
            "y",
            None,
            "40 different whole numbers[^$]*--task reg",
        ),
        ({"a": range(3000), "y": range(3000)}, "y", "multiclass", "at most 1,000 classes[^$]*--task regression"),
        ({"a": [1, 2, 3], "y": [None, None, None]}, "y", None, "the column 'y' has no value in any row"),
        ({"a": [1, 2, 3], "yes": [1, 0, 1]}, "yess", None, "no column 'yess'; did you mean 'yes'"),
        ({"a": [1, 2, 3], "y": [1, 0, 1]}, "y > 'x'", None, "cannot be computed: y holds int"),
        ({"a": [1, 2, 3], "y": [1, 0, 1]}, "y ^ 2", None, "expected columns, numbers, strings"),
        ({"a": [1, 2, 3], "y": ["u", "v", "w"]}, "y", "binary", "binary does not fit the label 'y'"),
        ({"a": [1, 1, 1], "y": [1, 0, 1]}, "y", None, "expected a column that can be a feature"),
    ],
)
def test_label_that_cannot_be_learned_is_rejected(
    rows: Rows, label: str, task: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        draft([write_rows("bad", rows, tmp_path)], label, task)


def test_features_of_a_draft_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dict(zip("abc", random().integers(0, 37, (3, 100)), strict=True))
    table = write_rows("wide", {**rows, "y": np.arange(100) % 2}, tmp_path)
    monkeypatch.setattr(scaffold, "MOST_FEATURE_COLUMNS", 3)
    assert draft([table], "y").features == ["a", "b", "c"]
    monkeypatch.setattr(scaffold, "MOST_FEATURE_COLUMNS", 2)
    with pytest.raises(InputError, match="--data: expected at most 2 columns that can be features, received 3"):
        draft([table], "y")


def test_rare_class_is_reported(tmp_path: Path) -> None:
    rows = {"a": range(100), "y": ["x"] * 50 + ["y"] * 47 + ["z"] * 3}
    drafted = draft([write_rows("rare", rows, tmp_path)], "y")
    assert drafted.task.notes == ("too few rows to be learned or evaluated: 'z' (3)",)
    assert "# too few rows to be learned or evaluated: 'z' (3)" in drafted.config("s")


def test_unreadable_rows_are_allowed_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "torn.csv"
    lines = [f"{number % 37},{number % 2}" + (",extra" if number % 50 == 0 else "") for number in range(500)]
    path.write_text("a,y\n" + "\n".join(lines) + "\n")
    drafted = draft([str(path)], "y")
    assert (drafted.table.rows, drafted.table.bad) == (500, 10)
    assert "bad_rows: {max_fraction: 0.03} # 10 rows are invalid" in drafted.config("s")


def make_leaking_rows() -> Rows:
    """Return orders whose columns leak the label.

    `refund` is filled in after the outcome, `score` nearly copies the label, and the order of `order_id` predicts it.
    """
    chance = random()
    late = np.sort((chance.random(ROWS) < 0.4).astype(int))
    return {
        "order_id": np.arange(ROWS),
        "refund": np.where(late == 1, chance.random(ROWS).round(4), np.nan),
        "score": (late + chance.normal(0, 0.01, ROWS)).round(4),
        "weight": chance.normal(5, 1, ROWS).round(3),
        "late": late,
    }


def test_leakage_is_reported_with_its_auc(tmp_path: Path) -> None:
    drafted = draft([write_rows("orders", make_leaking_rows(), tmp_path)], "late")
    assert {leak.column: leak.kind for leak in drafted.leaks} == {
        "order_id": "order",
        "refund": "filled",
        "score": "value",
    }
    assert drafted.features == ["score", "weight"]
    reasons = {name: column.why for name, column in drafted.columns.items()}
    assert reasons["order_id"] == (
        "a different number in each row: an identifier; leakage: an identifier whose order predicts the label: AUC 1"
    )
    assert reasons["refund"] == (
        "leakage: whether it is missing predicts the label: a value in 100.0% of the rows with label 1 and in "
        "0.0% of the others, AUC 1; make it a feature if it is known when the model predicts"
    )
    assert reasons["score"].endswith(
        "; leakage: it alone predicts the label: AUC 1; remove it if it is not known when the model predicts"
    )
    assert "leakage" not in reasons["weight"]
    path = tmp_path / "orders.yaml"
    path.write_text(drafted.config("schema.pbtxt"))
    assert set(load(str(path)).config.features.columns) == {"score", "weight"}


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("codes", "houses")])
def test_leakage_is_not_reported_for_other_tables(name: str, tmp_path: Path) -> None:
    # The label of people was made from years_worked alone.
    expected = ["years_worked"] if name == "people" else []
    assert [leak.column for leak in draft_table(name, tmp_path)[0].leaks] == expected


def test_decisions_are_listed_with_their_reasons(tmp_path: Path) -> None:
    drafted, _ = draft_table("trips", tmp_path)
    rows = {decision.column: decision for decision in decisions.list_column_decisions(drafted)}
    assert list(rows) == list(drafted.columns)
    assert rows["km"] == decisions.ColumnDecision(
        "km", "numbers", "z_score, log, piecewise_linear, missing", drafted.columns["km"].why
    )
    assert (rows["began"].features, rows["trip"].features, rows["trip"].kind) == ("date_parts", "-", "text")
    assert "identifier" in rows["trip"].why
    facts = dict(decisions.list_table_decisions(drafted))
    assert facts["label"] == "tip > 0.2 * fare"
    assert facts["task"].startswith("binary: the label has 2 values: ")
    assert facts["model"].startswith("ensemble: ")
    assert facts["training"].startswith(f"at most {drafted.defaults.training['steps']:,} steps: until ")


@pytest.mark.parametrize("kind", ["linear", "gbt", "gbt_linear", "tabm", "ensemble", "dcn_v2"])
@pytest.mark.parametrize("name", ["people", "houses"])
def test_decisions_of_every_kind_are_listed(name: str, kind: Any, tmp_path: Path) -> None:
    drafted = draft_table(name, tmp_path)[0].with_kind(kind, "it has the lowest loss")
    facts = dict(decisions.list_table_decisions(drafted))
    assert facts["model"] == f"{kind}: it has the lowest loss"
    assert facts["training"].startswith(
        "trees are added" if kind in WITHOUT_NETWORK else ("at most ", "300 steps", "6")
    )


@pytest.mark.parametrize(
    ("name", "content", "label", "headline", "remedy"),
    [
        ("none.csv", None, "y", "--data: ", "set --data to a file"),
        ("empty.csv", b"", "y", "it is empty", "add a row"),
        ("zip.csv", b"PK\x03\x04\x00", "y", "zip archive", "unpack it"),
        ("png.csv", b"\x89PNG\r\n\x00,", "y", "PNG image", "set --data to the folder"),
        ("column.parquet", b"PAR1", "y", "not a Parquet file", "fetch or write"),
        ("quote.csv", b'a,y\n"1,2\n3,4\n', "y", "a quote is opened and never closed", "close it"),
        ("label.csv", b"a,y\n1,2\n3,4\n", "z", "--label: the data has no column 'z'", "give --label"),
        ("chain.csv", b"a,y\n1,2\n3,4\n", "0 < a < 2", "--label: expected no chain", "give --label"),
    ],
)
def test_errors_name_options_instead_of_config_fields(
    name: str, content: bytes | None, label: str, headline: str, remedy: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        draft([str(path)], label)
    assert headline in refused.value.headline
    assert remedy in refused.value.remedy
    assert "data." not in f"{refused.value.headline} {refused.value.remedy}".replace(str(tmp_path), "")


def test_remedies_that_refer_to_config_fields_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"a": [{"b": 1}], "y": [1]}), path)
    with pytest.raises(InputError, match="the column a is nested") as refused:
        draft([str(path)], "y")
    assert refused.value.remedy == "flatten it"


@pytest.mark.parametrize("name", ["renamed", "lists"], ids=["csv", "parquet"])
def test_renamed_columns_are_named(name: str, tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=(60, 8))
    rows = {f"mean radius {number}": values[:, number].tolist() for number in range(7)}
    rows |= {"plain": values[:, 7].tolist(), "label": [number % 2 for number in range(60)]}
    drafted = draft([write_rows(name, rows, tmp_path)], "label")
    [note] = [note for note in drafted.table.format_notes if note.startswith("renamed")]
    assert note.startswith("renamed: 'mean radius 0' is mean_radius_0, 'mean radius 1' is mean_radius_1, ")
    assert note.endswith("'mean radius 4' is mean_radius_4, and 2 more")
    assert "mean_radius_6" in drafted.features


FLAG, KIND = {"worse_by": 0.01}, {"worse_by_fraction": 0.02}


@pytest.mark.parametrize(
    ("label", "metrics", "losses", "expected", "why"),
    [
        ("flag", {"auc": 0.9994}, [0.1, 0.1], {"auc": {"min": 0.749, **FLAG}}, "halfway to 0.9994"),
        ("flag", {"auc": 0.515}, [0.6, 0.6], {"auc": {"min": 0.5, **FLAG}}, "within two standard errors of 0.515"),
        ("flag", {"auc": 0.45}, [0.7, 0.7], {"auc": {"min": 0.55, **FLAG}}, "chance has 0.5"),
        ("kind", {"accuracy": 0.9}, [0.1, 0.1], {"accuracy": {"min": 0.7, **FLAG}}, "halfway to 0.9 of"),
        # The entropy of the shares 1/2, 1/4, 1/4 is 1.5 ln 2 = 1.0397.
        ("kind", {"accuracy": 0.505}, [0.5, 0.5], {"crossentropy": {"max": 0.77, **KIND}}, "halfway to 0.5 of"),
        ("kind", {"accuracy": 0.4}, [0.5, 0.5], {"crossentropy": {"max": 0.77, **KIND}}, "has 1.04"),
        ("kind", {"accuracy": 0.4}, [1.1, 1.1], {"accuracy": {"min": 0.5, **FLAG}}, "correct in 50.0%"),
        ("size", {}, [0.25, 0.25], {"mean_squared_error": {"max": 62.5, **KIND}}, "has 100; halfway to 25 of"),
        # 0.9 + 2 * 0.9 * sqrt(2 / 800)
        ("size", {}, [0.0, 1.8], {"mean_squared_error": {"max": 99, **KIND}}, "two standard errors from 90 of"),
        ("size", {}, [1.5, 1.5], {"mean_squared_error": {"max": 100, **KIND}}, "has 100"),
    ],
)
def test_threshold_is_between_the_constant_and_the_fitted_model(
    label: str,
    metrics: dict[str, float],
    losses: list[float],
    expected: dict[str, Any],
    why: str,
    tmp_path: Path,
) -> None:
    # The most frequent of three kinds has half of the rows; the sizes have the variance 100.
    rows = {
        "x": np.random.default_rng(4).normal(size=4000).tolist(),
        "flag": ["yes", "no"] * 2000,
        "kind": ["a", "b", "a", "c"] * 1000,
        "size": [10.25 + number % 97 * 1e-9 if number % 2 else -9.75 for number in range(4000)],
    }
    task: Task | None = "regression" if label == "size" else None
    fitted = Fit("gbt", np.array(losses * 400, np.float32), metrics)
    drafted = draft([write_rows("bounds", rows, tmp_path)], label, task).with_bounds(fitted)
    file = tmp_path / "bounds.yaml"
    file.write_text(drafted.config("schema.pbtxt"))
    assert drafted.defaults.thresholds == expected
    assert why in drafted.defaults.why_thresholds
    assert set(load(str(file)).config.evaluation.thresholds) == set(expected)


def test_equally_good_model_rarely_misses_the_threshold(tmp_path: Path) -> None:
    # One row in ten has label 1. Two normal distributions with this distance have the AUC Phi(0.3583 / sqrt(2)) = 0.6.
    random = np.random.default_rng(5)
    rows = {"x": random.normal(size=4000).tolist(), "flag": (["yes"] + ["no"] * 9) * 400}
    fitted = Fit("gbt", np.full(800, 0.3, np.float32), {"auc": 0.6})
    drafted = draft([write_rows("rare", rows, tmp_path)], "flag").with_bounds(fitted)
    positive, negative = random.normal(0.3583, 1, (400, 80)), random.normal(0, 1, (400, 720))
    measured = np.array([np.mean(ones[:, None] > zeros) for ones, zeros in zip(positive, negative, strict=True)])
    assert np.mean(measured) == pytest.approx(0.6, abs=0.01)
    assert np.mean(measured < 0.55) > 0.03, "halfway is too near"
    assert np.mean(measured < drafted.defaults.thresholds["auc"]["min"]) < 0.02
