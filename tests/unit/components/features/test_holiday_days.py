"""Holidays of countries; tests/zoo compares Germany's holidays with rules."""

from __future__ import annotations

from datetime import date
from typing import Any

import holidays
import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from components.features import dates
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.feature_spec import Ids
from components.features.holiday_days import find_holidays
from components.features.ops import output_spec


def is_holiday(values: Any, region: str, dtype: Any = tf.string) -> list[int | None]:
    when = column("when", tf.constant(values, dtype))
    unit: Any = "days" if dtype == tf.int64 else "seconds"
    found, known = dates.part_of(when, "holiday", unit, "ymd", region)
    return [int(value) if is_known else None for value, is_known in zip(found, known, strict=True)]


@pytest.mark.parametrize(
    ("region", "day", "expected"),
    [
        ("DE", "2024-12-25", 1),
        ("DE", "2024-04-01", 1),  # Easter Monday
        ("DE", "2024-12-24", 0),
        ("DE", "2023-10-31", 0),
        # Epiphany is a holiday in Bavaria, and Reformation Day in Brandenburg.
        ("DE", "2024-01-06", 0),
        ("DE-BY", "2024-01-06", 1),
        ("DE-BB", "2024-01-06", 0),
        ("DE-BB", "2023-10-31", 1),
        # Independence Day of 2021 was a Sunday, and was observed on Monday.
        ("US", "2021-07-04", 1),
        ("US", "2021-07-05", 1),
        ("US", "2021-07-06", 0),
        ("FR", "2024-07-14 23:59", 1),
        # An hour later in UTC.
        ("FR", "2024-07-14 23:59-01:00", 0),
        # The package knows Germany's holidays since the year after its unification.
        ("DE", "1990-12-25", None),
        ("DE", "1991-01-01", 1),
        ("US", "1969-12-25", None),
        ("US", "1970-01-01", 1),
        ("DE", "2050-12-26", 1),
        ("DE", "2051-01-01", None),
        ("DE", "0000-12-25", None),
        ("DE", "Christmas", None),
    ],
)
def test_public_holidays_of_a_region(region: str, day: str, expected: int | None) -> None:
    assert is_holiday([day], region) == [expected]


def test_integers_are_days_since_1970() -> None:
    christmas = (date(2024, 12, 25) - date(1970, 1, 1)).days
    assert is_holiday([christmas, christmas + 2, -1, 10**12], "DE", tf.int64) == [1, 0, None, None]


def test_holiday_is_one_of_the_parts_of_a_date() -> None:
    features = FeaturesConfig.model_validate(
        {"columns": {"when": {"date_parts": {"parts": ["month", "holiday"], "holidays": "AT-9"}}}}
    )
    month, holiday = features.declared
    assert (month.name, holiday.name) == ("when_month", "when_holiday")
    assert output_spec(holiday, lambda name: 0) == Ids(3, ordered=True)
    # A new release of the package may change the holidays.
    assert features.list_code() == ("holidays",)
    assert FeaturesConfig.model_validate({"columns": {"when": {"date_parts": ["month"]}}}).list_code() == ()


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:Requested Holidays are available only from:UserWarning")
def test_every_country_has_holidays_in_every_known_year() -> None:
    for region in set(holidays.list_supported_countries(include_aliases=False)) - {"BV", "HM", "IO"}:
        first, table = find_holidays(region)
        days = np.datetime64("1970-01-01") + first + np.flatnonzero(table)
        years = np.unique(days.astype("datetime64[Y]"))
        assert days[0].astype(object).year >= 1970
        assert len(years) == round(len(table) / 365.25), region
        assert (np.diff(years).astype(int) == 1).all(), region


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ["holiday"]}, "expected holidays, a country such as DE, for the part holiday; received none"),
        ({"parts": ["month"], "holidays": "DE"}, "holidays has an effect only with the part holiday"),
        (
            {"parts": ["holiday"], "holidays": "XX"},
            "expected the ISO 3166 code of a country, such as DE, received 'XX'",
        ),
        ({"parts": ["holiday"], "holidays": "AT-10"}, "expected a part of AT after the hyphen .*9.*, received '10'"),
        ({"parts": ["holiday"], "holidays": "BV"}, "expected a country with public holidays, received 'BV'"),
        ({"parts": ["holiday"], "holidays": "DE-"}, "expected a part of DE after the hyphen .*BY.*, received ''"),
    ],
)
def test_region_is_checked_with_the_config(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FeaturesConfig.model_validate({"columns": {"when": {"date_parts": options}}})
