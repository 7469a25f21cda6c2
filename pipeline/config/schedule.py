"""The `schedule` section: when an orchestrator runs the pipeline, and what it does when something goes wrong."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    StringConstraints,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from components.section import Section

_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_CRON_FIELDS = 5


class ScheduleConfig(Section):
    """When the pipeline runs; two runs of one pipeline never go on at once."""

    every: str = "@daily"
    """A cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly."""
    start: date
    """The first day, in UTC."""
    catch_up: bool = False
    """Whether days between `start` and now that nobody has run are run, oldest first."""
    span: Literal["newest", "date"] = "newest"
    """What a run takes. newest: the newest span there is. date: that of the run's own day, as days since 1970, so that
    a run over the past takes the data of then."""
    only_if: Literal["every", "new_span", "drift"] = "every"
    """every: each time. new_span: only if the data has a newer span than the last run that judged a model. drift: only
    if moreover a column has moved by `drift` since that run."""
    drift: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The distance that a column may move before a model is trained anew, as `diff-data` measures it (0: alike, 1:
    nothing in common). See first how far two ordinary spans lie apart."""
    retries: NonNegativeInt = 2
    """How often a node that has failed is tried again."""
    retry_minutes: NonNegativeFloat = 5.0
    """The pause before that."""
    timeout_hours: PositiveFloat = 24.0
    """A node that takes longer is ended, and has failed."""
    pool: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Airflow's pool that the nodes take their slots from."""
    owner: Annotated[str, StringConstraints(min_length=1)] = Field(default="airflow")
    """Whom Airflow names as the owner of the tasks."""

    @property
    def cron(self) -> str:
        """`every` as five fields of cron, for services that know no such names as @daily."""
        return _PRESETS.get(self.every, self.every)

    @field_validator("every")
    @classmethod
    def _is_known(cls, every: str) -> str:
        if every not in _PRESETS and (every.startswith("@") or len(every.split()) != _CRON_FIELDS):
            raise ValueError(f"expected five fields of cron or one of {', '.join(_PRESETS)}, received {every!r}")
        return every

    @model_validator(mode="after")
    def _goes_by_one_span(self) -> Self:
        if self.only_if == "drift" and self.span == "date":
            raise ValueError("only_if: drift looks at the newest span; expected span: newest, received span: date")
        return self


BY_HAND = ScheduleConfig.model_validate({"start": "2020-01-01"})
"""What holds without a section, when somebody starts the runs: retries and the like as the section would have them."""
