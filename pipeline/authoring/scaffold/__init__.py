"""Scaffolding of a first config and schema from the user's data: columns, features, learning task, model and bounds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from components.base.config_section import Task
from components.base.errors import InputError
from components.base.limits import MOST_FEATURE_COLUMNS
from components.data.date_texts import Order
from components.features.leakage import Leak
from components.models.config import HISTORY_KINDS, Kind
from pipeline.authoring.scaffold.defaults import TrainingDefaults, sections, training_defaults, training_rows
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice, choose
from pipeline.authoring.scaffold.histories import with_histories
from pipeline.authoring.scaffold.label import LearningTask, learning_task_of
from pipeline.authoring.scaffold.leakage import leaks, with_leaks
from pipeline.authoring.scaffold.sample import Table, read
from pipeline.authoring.scaffold.text_format import TextFormat
from pipeline.authoring.scaffold.yaml_text import document


@dataclass(frozen=True)
class Draft:
    """The draft of a config.

    Attributes:
      paths: of the data, as in `data.path`.
      table: the rows that were read.
      task: what is to be learned.
      columns: name → its features, or why it is excluded.
      defaults: split, model, training, thresholds and slices.
      leaks: the columns that alone predict the label.
    """

    paths: Sequence[str]
    table: Table
    task: LearningTask
    columns: Mapping[str, FeatureChoice | ExcludedColumn]
    defaults: TrainingDefaults
    leaks: tuple[Leak, ...] = ()

    @property
    def features(self) -> list[str]:
        """The columns that are features."""
        return [name for name, column in self.columns.items() if isinstance(column, FeatureChoice)]

    def with_kind(self, kind: Kind, why: str, figures: Sequence[str] = ()) -> Draft:
        """Return the draft with another kind of model.

        Args:
          kind: the kind.
          why: the reason.
          figures: how the kinds that were fitted compare, a line each.

        Raises:
          InputError: the kind reads histories, and no column is one.
        """
        columns = self.columns.values()
        if kind in HISTORY_KINDS and not any(isinstance(each, FeatureChoice) and each.is_history for each in columns):
            raise InputError(
                f"--kind: {kind} expects a column with lists of another column's earlier values, received none",
                "give another --kind, or none",
            )
        model, training, why_training = sections(kind, training_rows(self.table.rows), self.defaults.many_ids)
        defaults = replace(
            self.defaults,
            model=model,
            training=training,
            why_model=why,
            why_training=why_training,
            figures=tuple(figures),
        )
        return replace(self, defaults=defaults)

    def config(self, schema: str) -> str:
        """Return the config as YAML.

        Args:
          schema: path of the schema.
        """
        return document(self.paths, schema, self.table, self.task, self.columns, self.defaults)


def draft(
    paths: Sequence[str],
    label: str,
    task: Task | None = None,
    text_format: TextFormat | None = None,
    date_order: Order | None = None,
) -> Draft:
    """Read a table and draft a config for it.

    Args:
      paths: files, folders or patterns.
      label: a column, or an expression over columns.
      task: kind of prediction; None: derived from the label's values.
      text_format: what the user gives of the format of text files.
      date_order: the order of day, month and year in texts that can be read in two ways.

    Raises:
      InputError: the data is no table, the label cannot be learned, no column can be a feature, or something that the
        user has to decide can be read in two ways.
    """
    with _errors_with_flags():
        table = read(paths, text_format)
    learning_task = learning_task_of(table, label, task)
    found = leaks(table, learning_task)
    chosen = choose(table, learning_task, date_order)
    columns = with_leaks(with_histories(table, chosen, {*learning_task.columns, *found}), found)
    defaults = training_defaults(table, learning_task, columns)
    drafted = Draft(paths, table, learning_task, columns, defaults, tuple(found.values()))
    if not drafted.features:
        why = [f"{name}: {column.why}" for name, column in columns.items() if isinstance(column, ExcludedColumn)]
        raise InputError(
            "--data: expected a column that can be a feature, received none",
            "give --data with columns that are related to the label",
            why,
        )
    if len(drafted.features) > MOST_FEATURE_COLUMNS:
        raise InputError(
            f"--data: expected at most {MOST_FEATURE_COLUMNS:,} columns that can be features, received "
            f"{len(drafted.features):,}",
            "give --data without the columns that predict least",
        )
    return drafted


_FLAGS = {"data.path": "--data", "data.csv.encoding": "--encoding", "data.csv.delimiter": "--delimiter"}
"""Field of the config → the flag of init for it."""


@contextlib.contextmanager
def _errors_with_flags() -> Iterator[None]:
    """Replace fields of the config in the errors of ExampleGen's readers by init's flags."""
    try:
        yield
    except InputError as error:
        headline, remedy = error.headline, error.remedy
        for field, flag in _FLAGS.items():
            headline, remedy = headline.replace(field, flag), remedy.replace(field, flag)
        # Other fields have no flag, so that only the rest of the remedy helps.
        remedies = [part for part in re.split(r"[,;]? or (?=give |set |name |remove )", remedy) if "data." not in part]
        raise InputError(headline, ", or ".join(remedies) or "give other files with --data", error.details) from error
