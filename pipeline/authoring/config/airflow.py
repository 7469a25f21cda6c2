"""The section `airflow`: what starts runs under Airflow, what they wait for, and how their tasks share workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, StringConstraints, model_validator
from typing_extensions import Self

from components.base.config_section import Problem, Section
from components.base.errors import InputError
from components.base.files import is_remote
from components.base.names import ImportPath, did_you_mean
from components.ingest import spans
from pipeline.authoring.config.orchestrators import EVERY

AssetName = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,1498}[!-~])?$")]
"""Name of an Airflow asset. Airflow stores ASCII characters only, because of MySQL."""


def _check_specs(pattern: str) -> str:
    try:
        spans.check(pattern)
    except InputError as error:
        raise ValueError(error.headline.removeprefix("data.path: ")) from error
    if not spans.has_specs(pattern):
        raise ValueError(f"expected {{SPAN}}, or {{YYYY}}, {{MM}} and {{DD}}, received {pattern!r}")
    return pattern


class AirflowTaskConfig(Section):
    """Where and when Airflow runs the task of a node."""

    pool: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Airflow pool whose slots limit how many such tasks run at the same time. By default, `schedule.pool`."""
    pool_slots: PositiveInt = 1
    """Number of slots of the pool that the task occupies."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 1
    """Priority among all tasks that wait for a worker or a slot: the task with the highest number starts first."""
    queue: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Queue of the CeleryExecutor. Only workers that were started for it, as with `airflow celery worker --queues gpu`,
    take the task. By default, Airflow's default queue."""


class DataWaitConfig(Section):
    """A task that waits for the files of a run's span before the first node starts. While it waits, it is deferred:
    Airflow's triggerer looks for the files, and the task does not occupy a worker.
    """

    file: Annotated[str, StringConstraints(min_length=1), AfterValidator(_check_specs)] | None = None
    """Pattern of the file that is written last, such as data/{YYYY}-{MM}-{DD}/_SUCCESS. By default, every pattern of
    `data.path`, of which a first file suffices."""
    hours: PositiveFloat = 24.0
    """How long to wait, in hours. After that the run fails."""
    every_seconds: PositiveFloat = 60.0
    """Interval at which the triggerer looks for the files, in seconds."""


class AirflowConfig(Section):
    """Airflow, for `--airflow`."""

    asset: AssetName | None = None
    """Asset that each push updates. Pipelines and other DAGs that name it start after the push. By default, the name of
    the pipeline and `/model`."""
    run_after: tuple[AssetName, ...] = ()
    """Assets whose updates start a run, such as the asset of another pipeline. By default, only `schedule` starts
    runs."""
    run_after_rule: Literal["all", "any"] = "all"
    """all: a run starts when every asset of `run_after` was updated since the last run; any: it starts after each
    update."""
    at_times: bool = False
    """Whether runs start at the times of `schedule.every` as well, if `run_after` names assets."""
    wait_for_data: DataWaitConfig | None = None
    """How a run waits for its data. By default, a run whose data is missing fails."""
    on_success: ImportPath | None = None
    """Import path of a function that Airflow calls with its context after a successful run. Airflow's Python must be
    able to import the module."""
    on_failure: ImportPath | None = None
    """Import path of a function that Airflow calls with its context after a failed run."""
    on_task_failure: ImportPath | None = None
    """Import path of a function that Airflow calls with its context when a task has failed and is not tried again."""
    tasks: dict[str, AirflowTaskConfig] = Field(default_factory=dict)
    """Node → pool, priority and queue of its task. The key `every` applies to all tasks without an entry."""

    @model_validator(mode="after")
    def _check_assets(self) -> Self:
        if self.at_times and not self.run_after:
            raise ValueError("at_times: expected assets in run_after, received none; remove at_times")
        if twice := next((name for name in self.run_after if self.run_after.count(name) > 1), None):
            raise ValueError(f"run_after: expected different assets, received {twice!r} twice; remove one of them")
        return self

    def get_asset(self, pipeline: str) -> str:
        """Return the name of the asset that a push of this pipeline updates."""
        return self.asset or f"{pipeline}/model"

    def get_waited_patterns(self, config: Any) -> list[str]:
        """Return the absolute file patterns, with {SPAN} or a date, that a run waits for; empty without a wait.

        Args:
          config: The whole config, a pipeline.authoring.config.Config.
        """
        if self.wait_for_data is None:
            return []
        patterns = [self.wait_for_data.file] if self.wait_for_data.file else config.data.path
        return [pattern if is_remote(pattern) else str(Path(pattern).absolute()) for pattern in patterns]

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield nodes that the pipeline does not have, runs that would start themselves, and waits without a file."""
        names = (*config.node_names(), EVERY)
        for name in self.tasks:
            if name not in names:
                message = f"the pipeline has no node {name!r}{did_you_mean(name, names)}"
                yield Problem(("airflow", "tasks", name), message)
        if (asset := self.get_asset(config.pipeline.name)) in self.run_after:
            message = f"expected assets of others, received {asset!r}: each push would start the next run; remove it"
            yield Problem(("airflow", "run_after"), message)
        if self.at_times and config.schedule is None:
            yield Problem(("airflow", "at_times"), "expected a section schedule, received none; add schedule.start")
        if self.wait_for_data is not None:
            yield from self._check_wait(config)

    def _check_wait(self, config: Any) -> Iterator[Problem]:
        key = ("airflow", "wait_for_data")
        if config.schedule is None or config.schedule.span != "date":
            received = "no schedule" if config.schedule is None else f"{config.schedule.span}"
            message = f"expected schedule.span: date, received {received}: the day of a run names the files to wait for"
            yield Problem(key, f"{message}; set schedule.span")
        for pattern in self.get_waited_patterns(config):
            if is_remote(pattern):
                message = f"expected a file on a disk, received {pattern}: Airflow's file trigger does not read buckets"
                yield Problem(key, f"{message}; set wait_for_data.file to a local file, or remove wait_for_data")
            elif not spans.has_specs(pattern):
                message = f"expected {{SPAN}}, or {{YYYY}}, {{MM}} and {{DD}}, in every data.path, received {pattern}"
                yield Problem(key, f"{message}; set wait_for_data.file")
