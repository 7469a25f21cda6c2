"""Recognises attributes of persons that laws protect from discrimination, such as gender, by the names of columns.

Sources: Charter of Fundamental Rights of the European Union, article 21; Equal Credit Opportunity Act of the United
States, 15 U.S.C. 1691.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WORD = r"(?:^|_|(?<=[a-z0-9])(?=[A-Z]))"
"""The start of a word, as in customer_id and CustomerId."""
PERSONS = (
    "child|client|customer|employee|household|member|participant|passenger|patient|person|player|respondent|student|"
    "subject|user"
)
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
