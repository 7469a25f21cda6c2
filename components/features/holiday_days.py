"""The public holidays of countries and their parts, by the package `holidays`.

The days of the years `HOLIDAY_YEARS` become a constant of the transform graph, so a served model does not need the
package.
"""

from __future__ import annotations

from datetime import date

from components.base.names import did_you_mean

HOLIDAY_YEARS = (1970, 2050)
"""First and last year of the constant. Other dates count as missing."""
_ANY_YEAR = 2024


def check_region(region: str) -> None:
    """Check the code of a country, such as DE, or of a part of it, such as DE-BY.

    Raises:
      ValueError: If the package does not know it.
    """
    import holidays  # only for configs that use it

    countries = holidays.list_supported_countries()
    country, _, subdivision = region.partition("-")
    if country not in countries:
        raise ValueError(
            f"expected the ISO 3166 code of a country, such as DE, received {country!r}"
            f"{did_you_mean(country, countries)}"
        )
    if "-" in region and subdivision not in countries[country]:
        names = ", ".join(countries[country]) or "none"
        raise ValueError(f"expected a part of {country} after the hyphen ({names}), received {subdivision!r}")
    if not holidays.country_holidays(country, subdivision or None, years=_ANY_YEAR):
        # Islands without inhabitants.
        raise ValueError(f"expected a country with public holidays, received {country!r}, which has none")


def find_holidays(region: str) -> tuple[int, list[bool]]:
    """Find the public holidays of the years `HOLIDAY_YEARS`, or of the years among them that the package knows.

    If a holiday is moved to a working day, because it falls on a weekend, both days are holidays.

    Args:
      region: See `check_region`.

    Returns:
      The first day of these years, in days since 1970-01-01; and for all days from then on, up to the last day of these
      years, whether they are holidays.
    """
    import holidays  # Transform alone needs it

    country, _, subdivision = region.partition("-")
    days = holidays.country_holidays(country, subdivision or None, years=range(HOLIDAY_YEARS[0], HOLIDAY_YEARS[1] + 1))
    # The package knows the holidays of Germany, for example, since 1991, and returns none for earlier years.
    least, greatest = max(HOLIDAY_YEARS[0], days.start_year), min(HOLIDAY_YEARS[1], days.end_year)
    years = {day.year for day in days if least <= day.year <= greatest}
    first, end = date(min(years), 1, 1).toordinal(), date(max(years) + 1, 1, 1).toordinal()
    return first - date(1970, 1, 1).toordinal(), [date.fromordinal(day) in days for day in range(first, end)]
