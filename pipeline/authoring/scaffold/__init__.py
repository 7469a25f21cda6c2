"""Drafts a first config and schema from the user's data: columns, features, learning task, model and bounds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from components.base.config_section import Task
from components.base.errors import InputError
from components.base.limits import MOST_FEATURE_COLUMNS
from components.data.date_texts import Order
from components.features.leakage import Leak
from components.models.config import HISTORY_KINDS, Kind
from pipeline.authoring.protected_attributes import find_protected
from pipeline.authoring.scaffold.crosses import CrossChoice, find_crosses
from pipeline.authoring.scaffold.defaults import (
    TrainingDefaults,
    choose_thresholds,
    sections,
    training_defaults,
    training_rows,
)
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice, choose
from pipeline.authoring.scaffold.groups import exclude_group, find_group
from pipeline.authoring.scaffold.histories import with_histories
from pipeline.authoring.scaffold.kind_choice import Fit
from pipeline.authoring.scaffold.label import LearningTask, learning_task_of
from pipeline.authoring.scaffold.leakage import leaks, with_leaks
from pipeline.authoring.scaffold.panels import find_panel
from pipeline.authoring.scaffold.protected import exclude_protected
from pipeline.authoring.scaffold.sample import Table, read
from pipeline.authoring.scaffold.text_format import TextFormat
from pipeline.authoring.scaffold.yaml_text import document


@dataclass(frozen=True)
class Draft:
    """The draft of a config.

    Attributes:
      paths: Paths of the data, as in `data.path`.
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.
      defaults: Sections for split, model, training, thresholds and slices.
      leaks: Columns that alone predict the label.
      protected: Columns with attributes of persons that laws protect.
      crosses: Pairs of columns whose combination predicts the label.
    """

    paths: Sequence[str]
    table: Table
    task: LearningTask
    columns: Mapping[str, FeatureChoice | ExcludedColumn]
    defaults: TrainingDefaults
    leaks: tuple[Leak, ...] = ()
    protected: tuple[str, ...] = ()
    crosses: tuple[CrossChoice, ...] = ()

    @property
    def features(self) -> list[str]:
        """Names of the columns that are features."""
        return [name for name, column in self.columns.items() if isinstance(column, FeatureChoice)]

    def with_kind(self, kind: Kind, why: str, figures: Sequence[str] = ()) -> Draft:
        """Return the draft with another kind of model.

        Args:
          kind: New kind of model.
          why: Reason for the kind, as a comment in the config.
          figures: Comparison of the fitted kinds, one line per kind.

        Raises:
          InputError: If the kind reads histories, but none of the columns is a history.
        """
        columns = self.columns.values()
        if kind in HISTORY_KINDS and not any(
            isinstance(column, FeatureChoice) and column.is_history for column in columns
        ):
            raise InputError(
                f"--kind: {kind} expects a column with lists of another column's earlier values, received none",
                "give another --kind, or none",
            )
        model, training, why_training = sections(kind, self.defaults.size, self.task)
        defaults = replace(
            self.defaults,
            model=model,
            training=training,
            why_model=why,
            why_training=why_training,
            figures=tuple(figures),
        )
        return replace(self, defaults=defaults)

    def with_bounds(self, fitted: Fit) -> Draft:
        """Return the draft with thresholds from a fitted candidate; see `defaults.choose_thresholds`."""
        rows = self.table.rows - training_rows(self.table.rows)
        thresholds, why = choose_thresholds(self.task, rows, fitted)
        return replace(self, defaults=replace(self.defaults, thresholds=thresholds, why_thresholds=why))

    def config(self, schema: str) -> str:
        """Return the config as YAML with comments.

        Args:
          schema: Path of the schema, for `schema.path`.
        """
        return document(self.paths, schema, self.table, self.task, self.columns, self.crosses, self.defaults)


def draft(
    paths: Sequence[str],
    label: str,
    task: Task | None = None,
    text_format: TextFormat | None = None,
    date_order: Order | None = None,
    kept: Collection[str] = (),
) -> Draft:
    """Read a table and draft a config for it.

    Args:
      paths: Files, folders or patterns, as in `data.path`.
      label: Column, or expression over columns.
      task: Kind of prediction. If None, it is derived from the label's values.
      text_format: Properties of text files that the user specified. The others are derived from the data.
      date_order: Order of day, month and year for texts such as 01/02/2024, which can be read in two ways.
      kept: Protected attributes of persons that become features nevertheless.

    Raises:
      InputError: If the files are not a table, if the label cannot be learned, if none of the columns can be a
        feature, or if the data is ambiguous and the user has to decide how to read it.
    """
    with _errors_with_flags():
        table = read(paths, text_format)
    learning_task = learning_task_of(table, label, task)
    leak_by_column = leaks(table, learning_task)
    chosen = choose(table, learning_task, date_order)
    columns = with_leaks(with_histories(table, chosen, {*learning_task.columns, *leak_by_column}), leak_by_column)
    protected = [name for name in find_protected(columns) if name not in learning_task.columns]
    columns = exclude_protected(columns, protected, kept)
    if group := find_group(table, learning_task, columns):
        columns = {**columns, group: exclude_group(group, table.columns[group])}
    panel = None if group else find_panel(table, learning_task, columns)
    defaults = training_defaults(table, learning_task, columns, group, protected, panel)
    drafted = Draft(paths, table, learning_task, columns, defaults, tuple(leak_by_column.values()), tuple(protected))
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
    return replace(drafted, crosses=find_crosses(table, learning_task, columns))


_FLAGS = {"data.path": "--data", "data.csv.encoding": "--encoding", "data.csv.delimiter": "--delimiter"}
"""Field of the config → the flag of `init` that sets it."""


@contextlib.contextmanager
def _errors_with_flags() -> Iterator[None]:
    """Replace names of config fields with flags of `init` in the errors that ExampleGen's readers raise."""
    try:
        yield
    except InputError as error:
        headline, remedy = error.headline, error.remedy
        for field, flag in _FLAGS.items():
            headline, remedy = headline.replace(field, flag), remedy.replace(field, flag)
        # init cannot set other fields, so drop the parts of the remedy that name them.
        remedies = [part for part in re.split(r"[,;]? or (?=give |set |name |remove )", remedy) if "data." not in part]
        raise InputError(headline, ", or ".join(remedies) or "give other files with --data", error.details) from error
