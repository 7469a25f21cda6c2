"""Recognises attributes of persons that laws protect from discrimination, such as gender, by the names of columns.

Sources: Charter of Fundamental Rights of the European Union, article 21; Equal Credit Opportunity Act of the United
States, 15 U.S.C. 1691.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from components.base.errors import InputError
from components.base.names import column_name, did_you_mean
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.identifiers import PERSONS, WORD

_END = r"(?:$|_|(?<=[a-z0-9])(?=[A-Z]))"
_OF_PERSONS = re.compile(
    rf"{WORD}(?i:sex|gender|race|ethn|ethnic|ethnicity|religion|nationality|citizenship|disability|disabled|dob)$"
    rf"|(?i:^(?:(?:is_?)?(?:fe)?male|sexual_?orientation|native_?country|country_?of_?birth|date_?of_?birth)$)"
    rf"|(?i:^(?:afam|african_?american|black_?american|hispanic|latin[ao]|non_?white)$)"
    rf"|(?i:^(?:birth_?(?:date|country|place|year)|year_?of_?birth)$)|{WORD}(?i:marital|maritl)"
)
_OF_ANYTHING = re.compile(
    r"(?i:age|age_?(?:group|class|(?:in_?)?years)|origin|national_?origin|married|black|white|minority|immigrant)"
)
"""Attributes of persons if the rows are about persons: concrete has an age, and a flight an origin."""
_ABOUT_PERSONS = re.compile(
    rf"{WORD}(?i:{PERSONS}|income|wages?|salary|occupation|profession|job|education|spouse|children|siblings?|smoker|"
    rf"smoking|bmi){_END}"
)


def find_protected(names: Iterable[str]) -> list[str]:
    """Return the columns that contain protected attributes of persons, in their order.

    Args:
      names: Names of all columns, including the label's.
    """
    columns = list(names)
    about_persons = any(_OF_PERSONS.search(name) or _ABOUT_PERSONS.search(name) for name in columns)
    return [name for name in columns if _OF_PERSONS.search(name) or (about_persons and _OF_ANYTHING.fullmatch(name))]


def exclude_protected(
    columns: Mapping[str, FeatureChoice | ExcludedColumn], protected: Collection[str], kept: Collection[str]
) -> dict[str, FeatureChoice | ExcludedColumn]:
    """Exclude protected attributes from the features.

    Args:
      columns: Column name → its features, or the reason why it is excluded.
      protected: The columns that contain protected attributes.
      kept: Names or headers of columns that the user wants as features.

    Raises:
      InputError: If the data does not have one of the kept columns.
    """
    for name in kept:
        if column_name(name) not in columns:
            raise InputError(
                f"--keep: the data has no column {name!r}{did_you_mean(name, columns)}",
                "give the names of columns that init excluded as protected attributes",
            )
    excluded = {*protected} - {column_name(name) for name in kept}
    return {
        name: ExcludedColumn(f"a protected attribute of persons; --keep {name} makes it a feature")
        if isinstance(column, FeatureChoice) and name in excluded
        else column
        for name, column in columns.items()
    }
