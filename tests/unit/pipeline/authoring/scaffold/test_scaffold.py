"""A config drafted from tables of different shapes: every one is valid, and holds what the table shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scaffold_tables import ROWS, TABLES, Rows, codes, houses, random, write_rows

from components.base.config_section import Task
from components.base.errors import InputError
from components.data_gate import schema_columns as schemas
from components.features.config import OPS
from components.ingest import readers
from pipeline.authoring import scaffold
from pipeline.authoring.config import Config, load
from pipeline.authoring.config.cross_checks import check_columns
from pipeline.authoring.scaffold import Draft, decisions, draft
from pipeline.authoring.scaffold.schema import schema


def drafted(name: str, folder: Path) -> tuple[Draft, Config]:
    make, label = TABLES[name]
    found = draft([write_rows(name, make(), folder)], label)
    config = folder / "drafted.yaml"
    config.write_text(found.config("schema.pbtxt"))
    return found, load(str(config)).config


def ops(config: Config, column: str) -> list[str]:
    return [op.op for op in config.features.columns[column]]


@pytest.mark.parametrize("name", TABLES)
def test_every_draft_is_a_valid_config_with_a_word_on_each_column(name: str, tmp_path: Path) -> None:
    found, config = drafted(name, tmp_path)
    text = found.config("schema.pbtxt")
    commented = {line.split(":")[0].strip(" #") for line in text.splitlines() if "#" in line}
    assert set(found.columns) <= commented
    assert set(config.features.columns) == set(found.features)
    assert {op.op for column in config.features.columns.values() for op in column} <= set(OPS)
    assert max(map(len, text.splitlines())) < 250


def test_census_keeps_its_tail_and_knows_what_is_missing(tmp_path: Path) -> None:
    found, config = drafted("people", tmp_path)
    assert config.data.csv.skip_initial_space
    assert config.data.csv.null_values == ("", "?")
    assert (config.data.label, config.data.task) == ("income == '>50K'", "binary")
    assert ops(config, "Capital_Gain") == ["z_score", "log", "piecewise_linear"]
    assert ops(config, "job") == ["vocab"]
    assert found.table.columns["job"].null_count > 0
    assert set(found.columns) - set(found.features) == {"country", "income"}
    assert config.model.kind == "ensemble"


def test_folds_are_for_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._FEW_ROWS", 50)
    _, config = drafted("flowers", tmp_path)
    assert (config.training.folds, config.model.members) == (None, 8)


def test_small_table_has_few_bins_and_stops_early(tmp_path: Path) -> None:
    _, config = drafted("flowers", tmp_path)
    assert config.data.task == "multiclass"
    assert config.features.columns["width"][1].model_dump()["bins"] == 4
    training = config.training
    assert training.early_stopping == 12
    assert (training.folds, config.model.members) == (5, 4)
    assert training.checkpoint.every_steps == 20, "no evaluation after each of the few steps of an epoch"
    assert training.steps == 2 * 12 * 20, "the ceiling lets early stopping decide"
    # Always saying the most frequent class is no model.
    assert config.evaluation.thresholds["accuracy"].min == pytest.approx(0.35, abs=0.1)


def test_many_ids_are_learned_by_another_model_at_a_rate_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._MANY_IDS", 50)
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._LEAST_STEPS", 1)
    chance = random()
    user = chance.integers(0, 100, 3 * ROWS)
    rows = {"user": [f"u{each}" for each in user], "clicked": (user + chance.normal(0, 30, len(user)) > 50).astype(int)}
    drawn = draft([write_rows("ids", rows, tmp_path)], "clicked")
    (tmp_path / "drafted.yaml").write_text(drawn.config("schema.pbtxt"))
    config = load(str(tmp_path / "drafted.yaml")).config
    assert config.model.kind == "dcn_v2"
    assert config.training.table_learning_rate == 0.05
    passes = config.training.steps * config.training.batch_size / (3 * ROWS * 0.8)
    assert passes == pytest.approx(1, abs=0.1)
    assert drafted("people", tmp_path)[1].training.table_learning_rate is None


def test_trees_are_for_tables_that_they_read_in_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.defaults._MOST_OF_TREES", 100)
    config = drafted("people", tmp_path)[1]
    assert config.model.kind == "tabm"
    assert config.training.early_stopping


def test_price_has_a_bound_of_its_variance_and_no_copy_of_itself(tmp_path: Path) -> None:
    found, config = drafted("houses", tmp_path)
    assert config.data.csv.delimiter == ";"
    assert config.data.task == "regression"
    assert set(config.features.columns) == {"size", "rooms"}
    variance = np.var(houses()["price"])
    assert config.evaluation.thresholds["mean_squared_error"].max == pytest.approx(variance, rel=0.01, abs=1e-3)
    why = {name: getattr(found.columns[name], "why", "") for name in ("house_id", "price_in_thousands", "remark")}
    assert "identifier" in why["house_id"]
    assert "copy of the label" in why["price_in_thousands"]
    assert "no value" in why["remark"]


def test_timestamps_contribute_only_recurring_parts(tmp_path: Path) -> None:
    found, config = drafted("trips", tmp_path)
    assert config.features.columns["began"][0].model_dump()["parts"] == ("month", "weekday", "hour")
    assert config.features.columns["ended_at"][0].model_dump()["unit"] == "seconds"
    assert config.features.columns["tags"][0].model_dump()["separator"] == "|"
    assert ops(config, "comment") == ["text"]
    assert ops(config, "km") == ["z_score", "log", "piecewise_linear", "missing"]
    assert set(found.columns) - set(found.features) == {"trip", "tip"}, "the fare alone tells little of the label"


def test_codes_get_a_bin_each_and_a_label_of_two_numbers_is_compared(tmp_path: Path) -> None:
    found, config = drafted("codes", tmp_path)
    assert (config.data.label, config.data.task) == ("outcome == 2", "binary")
    assert config.features.columns["zone"][1].model_dump()["bins"] == 28
    assert ops(config, "flag") == ["z_score"]
    assert "same" not in found.features


def test_lists_of_texts_are_split_and_lists_of_numbers_left_out(tmp_path: Path) -> None:
    found, config = drafted("lists", tmp_path)
    assert ops(config, "seen") == ["split"]
    assert "vector" not in found.features
    assert config.data.label == "bought"
    assert ops(config, "when") == ["date_parts"]


def test_earlier_values_of_a_column_are_a_history_of_it(tmp_path: Path) -> None:
    _, config = drafted("visits", tmp_path)
    assert (ops(config, "page"), ops(config, "topic")) == (["vocab"], ["vocab"])
    [pages], [topics], [times] = (config.features.columns[f"past_{name}"] for name in ("pages", "topics", "times"))
    most = {"max_values": 5}
    assert pages.model_dump(exclude_defaults=True) == {**most, "of": "page"}
    assert topics.model_dump(exclude_defaults=True) == {**most, "of": "topic", "along": "past_pages"}
    assert times.model_dump(exclude_defaults=True) == {**most, "until": "time", "along": "past_pages"}
    assert ops(config, "tags") == ["split"]
    assert config.model.kind == "din"


def test_kind_of_histories_needs_one(tmp_path: Path) -> None:
    found, _ = drafted("visits", tmp_path)
    assert found.with_kind("bst", "chosen by --kind").defaults.model["kind"] == "bst"
    found, _ = drafted("lists", tmp_path)
    with pytest.raises(InputError, match="din expects a column with lists of another column's earlier values"):
        found.with_kind("din", "chosen by --kind")


@pytest.mark.both_lines
@pytest.mark.parametrize("name", ["houses", "people", "lists", "visits"])
def test_schema_knows_every_column_and_demands_what_was_there(name: str, tmp_path: Path) -> None:
    found, _ = drafted(name, tmp_path)
    path = tmp_path / "schema.pbtxt"
    path.write_text(schema(found.table))
    known = schemas.read(str(path))
    assert list(found.columns) == sorted(known, key=list(found.columns).index)
    whole = {column for column, values in found.table.columns.items() if not values.null_count}
    # One that is nearly always there has to be there in nearly as many rows, and one without values need not be.
    assert whole <= {column for column, domain in known.items() if domain.required}
    assert "remark" not in known or not known["remark"].required


def test_large_table_is_sampled_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.sample._SAMPLE_ROWS", 200)
    found, _ = drafted("codes", tmp_path)
    assert found.table.rows == ROWS
    assert 50 < found.table.sampled <= 200
    zones = found.table.columns["zone"].to_pylist()
    assert zones != codes()["zone"][: len(zones)].tolist(), "by chance, not the first ones"
    assert f"600 rows in 1 file, from a sample of {found.table.sampled}." in found.config("s")


@pytest.mark.parametrize(
    ("rows", "label", "task", "message"),
    [
        ({"a": [1, 2, 3], "y": [1, 1, 1]}, "y", None, "'y' is the same in all 3 rows"),
        ({"a": [1, 2, 3], "y": [1, None, 0]}, "y", None, "'y' is missing in 1 of 3 rows[^$]*--label a comparison"),
        (
            {"a": range(400), "y": [each % 40 for each in range(400)]},
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
    rows = {name: np.arange(100) * factor % 37 for name, factor in (("a", 5), ("b", 7), ("c", 11))}
    table = write_rows("wide", {**rows, "y": np.arange(100) % 2}, tmp_path)
    monkeypatch.setattr(scaffold, "MOST_FEATURE_COLUMNS", 3)
    assert draft([table], "y").features == ["a", "b", "c"]
    monkeypatch.setattr(scaffold, "MOST_FEATURE_COLUMNS", 2)
    with pytest.raises(InputError, match="--data: expected at most 2 columns that can be features, received 3"):
        draft([table], "y")


def test_rare_class_is_reported(tmp_path: Path) -> None:
    rows = {"a": range(100), "y": ["x"] * 50 + ["y"] * 47 + ["z"] * 3}
    found = draft([write_rows("rare", rows, tmp_path)], "y")
    assert found.task.notes == ("too few rows to be learned or evaluated: 'z' (3)",)
    assert "# too few rows to be learned or evaluated: 'z' (3)" in found.config("s")


def test_unreadable_rows_are_allowed_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "torn.csv"
    lines = [f"{number % 37},{number % 2}" + (",extra" if number % 50 == 0 else "") for number in range(500)]
    path.write_text("a,y\n" + "\n".join(lines) + "\n")
    found = draft([str(path)], "y")
    assert (found.table.rows, found.table.bad) == (500, 10)
    assert "bad_rows: {max_fraction: 0.03} # 10 rows are invalid" in found.config("s")


def leaking() -> Rows:
    """Orders with a column that is filled after the outcome, one that copies it nearly, and sorted numbers."""
    chance = random()
    late = np.sort((chance.random(ROWS) < 0.4).astype(int))
    return {
        "order_id": np.arange(ROWS),
        "refund": np.where(late == 1, chance.random(ROWS).round(4), np.nan),
        "score": (late + chance.normal(0, 0.01, ROWS)).round(4),
        "weight": chance.normal(5, 1, ROWS).round(3),
        "late": late,
    }


def test_leakage_is_named_with_its_figure(tmp_path: Path) -> None:
    found = draft([write_rows("orders", leaking(), tmp_path)], "late")
    assert {leak.column: leak.kind for leak in found.leaks} == {
        "order_id": "order",
        "refund": "filled",
        "score": "value",
    }
    assert found.features == ["score", "weight"]
    why = {name: column.why for name, column in found.columns.items()}
    assert why["order_id"] == (
        "a different number in each row: an identifier; leakage: an identifier whose order predicts the label: AUC 1"
    )
    assert why["refund"] == (
        "leakage: whether it is missing predicts the label: a value in 100.0% of the rows with label 1 and in "
        "0.0% of the others, AUC 1; make it a feature if it is known when the model predicts"
    )
    assert why["score"].endswith(
        "; leakage: it alone predicts the label: AUC 1; remove it if it is not known when the model predicts"
    )
    assert "leakage" not in why["weight"]
    path = tmp_path / "orders.yaml"
    path.write_text(found.config("schema.pbtxt"))
    assert set(load(str(path)).config.features.columns) == {"score", "weight"}


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("codes", "houses")])
def test_other_tables_have_no_leakage(name: str, tmp_path: Path) -> None:
    assert drafted(name, tmp_path)[0].leaks == ()


def labeled(values: Any, folder: Path, task: Task | None = None) -> Draft:
    return draft([write_rows("labeled", {"a": random().normal(size=len(values)), "y": values}, folder)], "y", task)


def test_many_integers_are_a_quantity_where_none_has_the_rows_of_a_class(tmp_path: Path) -> None:
    assert labeled(random().integers(0, 300, ROWS), tmp_path).task.task == "regression"
    assert labeled([each % 30 for each in range(ROWS)], tmp_path).task.task == "multiclass"


def test_many_integers_are_what_the_user_says(tmp_path: Path) -> None:
    values = [each % 50 for each in range(ROWS)]
    assert labeled(values, tmp_path, "regression").task.task == "regression"
    assert len(labeled(values, tmp_path, "multiclass").task.classes) == 50


@pytest.mark.parametrize(
    ("header", "label", "written_label"),
    [
        ("class", "class", "class == 'yes'"),
        ("class", "class == 'yes'", "class == 'yes'"),
        ("is it spam?", "is it spam?", "is_it_spam == 'yes'"),
        ("Is.Größe (cm)", "Is.Größe (cm)", "Is_Grosse_cm == 'yes'"),
        ("ラベル", "`ラベル` == 'yes'", "`ラベル` == 'yes'"),
        ("not", "not", "`not` == 'yes'"),
    ],
)
def test_label_of_any_name_is_written_so_that_the_config_is_valid(
    header: str, label: str, written_label: str, tmp_path: Path
) -> None:
    path = tmp_path / "named.csv"
    path.write_text(f"lambda,{header}\n" + "".join(f"{each % 7},{'yes' if each % 3 else 'no'}\n" for each in range(99)))
    config = tmp_path / "drafted.yaml"
    config.write_text(draft([str(path)], label).config("schema.pbtxt"))
    loaded = load(str(config))
    assert loaded.config.data.label == written_label
    assert not check_columns(loaded.config, readers.columns(loaded.config.data) or [])
    assert list(loaded.config.features.columns) == ["lambda"]


def test_what_was_decided_is_said_with_its_reason(tmp_path: Path) -> None:
    found, _ = drafted("trips", tmp_path)
    rows = {each.column: each for each in decisions.of_columns(found)}
    assert list(rows) == list(found.columns)
    assert rows["km"] == decisions.ColumnDecision(
        "km", "numbers", "z_score, log, piecewise_linear, missing", found.columns["km"].why
    )
    assert (rows["began"].features, rows["trip"].features, rows["trip"].kind) == ("date_parts", "-", "text")
    assert "identifier" in rows["trip"].why
    facts = dict(decisions.of_table(found))
    assert facts["label"] == "tip > 0.2 * fare"
    assert facts["task"].startswith("binary: the label has 2 values: ")
    assert facts["model"].startswith("ensemble: ")
    assert facts["training"].startswith(f"at most {found.defaults.training['steps']:,} steps: until ")


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
def test_refusals_name_flags_and_no_field_of_a_config(
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


def test_remedies_without_a_flag_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"a": [{"b": 1}], "y": [1]}), path)
    with pytest.raises(InputError, match="the column a is nested") as refused:
        draft([str(path)], "y")
    assert refused.value.remedy == "flatten it"
