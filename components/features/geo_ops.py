"""Settings of the operation on places: `geo_distance`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.features.base_op import Dtype, Op


class GeoDistance(Op):
    """The great-circle distance in km from the column, which is a latitude, and a longitude to a place; then log and
    z_score.

    The distance is the haversine formula on a sphere with the radius 6371.0088 km, the mean radius of the earth. If a
    coordinate is missing, or a latitude is not within [-90, 90] or a longitude not within [-180, 180], the feature is
    0, the mean.
    """

    takes = frozenset[Dtype]({"int", "float"})
    op: Literal["geo_distance"] = "geo_distance"
    longitude: str
    """Column with the longitude in degrees. Latitudes are in degrees, too."""
    to: tuple[float, float] | tuple[str, str] = Field(union_mode="left_to_right")
    """Latitude and longitude of the place: two numbers, or two columns."""

    @model_validator(mode="after")
    def _check_place(self) -> GeoDistance:
        latitude, longitude = self.to
        if (
            isinstance(latitude, float)
            and isinstance(longitude, float)
            and not (abs(latitude) <= 90 and abs(longitude) <= 180)
        ):
            raise ValueError(
                "to: expected a latitude within [-90, 90] and a longitude within [-180, 180], "
                f"received {latitude:g}, {longitude:g}"
            )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read in addition to the latitude."""
        return (self.longitude, *(name for name in self.to if isinstance(name, str)))
