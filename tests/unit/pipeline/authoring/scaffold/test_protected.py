"""Tests for attributes of persons that laws protect, such as gender."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from components.base.errors import InputError
from pipeline.authoring.config import Config, load
from pipeline.authoring.protected_attributes import find_protected
from pipeline.authoring.scaffold import Draft, decisions, draft
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice

ROWS = 400


@pytest.mark.parametrize(
    ("names", "protected"),
    [
        (["Sex", "Pclass", "Age", "Fare"], ["Sex", "Age"]),
        (["age", "workclass", "income"], ["age"]),
        (["age_group", "patient_id", "dose"], ["age_group"]),
        (["CustomerGender", "customerAge", "nationality"], ["CustomerGender", "nationality"]),
        (["maritl", "race", "education", "birthYear"], ["maritl", "race", "birthYear"]),
        (["male", "smoker", "is_female"], ["male", "is_female"]),
        (["deny", "afam", "lvrat"], ["afam"]),
        # Other things have an age, an origin or a race, too.
        (["cement", "water", "age", "strength"], []),
        (["origin", "destination", "delay"], []),
        (["mpg", "origin", "weight"], []),
        (["page", "stage", "race_id", "sextant", "unisex_size"], []),
    ],
)
def test_attributes_of_persons_are_recognized_by_their_names(names: list[str], protected: list[str]) -> None:
    assert find_protected(names) == protected


def draft_people(folder: Path, kept: tuple[str, ...] = (), **replaced: Any) -> tuple[Draft, Config]:
    chance = np.random.default_rng(4)
    columns: dict[str, Any] = {
        "Gender": chance.choice(["f", "m"], ROWS),
        "age": chance.integers(18, 80, ROWS),
        "race": chance.integers(1, 5, ROWS),
        "plan": chance.choice(["a", "b", "c"], ROWS),
        "minutes used": chance.normal(size=ROWS),
        "churned": chance.integers(0, 2, ROWS),
    }
    path = folder / "people.csv"
    pd.DataFrame(columns | replaced).to_csv(path, index=False)
    drafted = draft([str(path)], "churned", kept=kept)
    config = folder / "people.yaml"
    config.write_text(drafted.config("people.pbtxt"))
    return drafted, load(str(config)).config


def test_protected_attributes_are_groups_and_no_features(tmp_path: Path) -> None:
    drafted, config = draft_people(tmp_path)
    assert drafted.features == ["plan", "minutes_used"]
    assert drafted.columns["age"] == ExcludedColumn("a protected attribute of persons; --keep age makes it a feature")
    # Codes are groups, too. An age is not: every value would be a slice.
    assert config.evaluation.slices == (("Gender",), ("race",), ("plan",))
    assert config.evaluation.fairness is not None
    assert config.evaluation.fairness.column == "Gender"
    assert not config.evaluation.fairness.max_gap
    shown = dict(decisions.list_table_decisions(drafted))["protected"]
    assert shown == "Gender, age, race: attributes of persons; --keep Gender age race makes them features"


def test_kept_attributes_are_features_and_groups(tmp_path: Path) -> None:
    drafted, config = draft_people(tmp_path, kept=("Gender", "age"))
    assert drafted.features == ["Gender", "age", "plan", "minutes_used"]
    assert config.evaluation.slices == (("Gender",), ("race",), ("plan",))
    shown = dict(decisions.list_table_decisions(drafted))["protected"]
    assert shown == "Gender, age, race: attributes of persons; --keep race makes them features"


def test_codes_of_a_protected_attribute_are_no_features_either(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    gender = chance.choice(["f", "m"], ROWS)
    drafted, _ = draft_people(tmp_path, Gender=gender, code=np.where(gender == "f", 1, 2))
    assert isinstance(drafted.columns["code"], ExcludedColumn)
    assert "code" not in drafted.features


def test_label_is_not_excluded_again(tmp_path: Path) -> None:
    chance = np.random.default_rng(6)
    path = tmp_path / "people.csv"
    frame = pd.DataFrame({"sex": chance.choice(["f", "m"], ROWS), "job": chance.choice(["a", "b"], ROWS)})
    frame.assign(height=chance.normal(size=ROWS)).to_csv(path, index=False)
    drafted = draft([str(path)], "sex")
    assert drafted.columns["sex"] == ExcludedColumn("the label")
    assert not drafted.protected


def test_misspelt_column_to_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--keep: the data has no column 'gendr'; did you mean 'Gender'"):
        draft_people(tmp_path, kept=("gendr",))


def test_header_of_a_column_can_be_kept(tmp_path: Path) -> None:
    drafted, _ = draft_people(tmp_path, kept=("marital status",), **{"marital status": ["single", "married"] * 200})
    assert isinstance(drafted.columns["marital_status"], FeatureChoice)
