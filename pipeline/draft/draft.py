"""The whole way from files to a config and a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.errors import InputError
from components.section import Task
from pipeline.draft.choice import Chosen, LeftOut, choose
from pipeline.draft.document import document
from pipeline.draft.recipe import Recipe, recipe
from pipeline.draft.table import Table, read
from pipeline.draft.target import Goal, goal


@dataclass(frozen=True)
class Draft:
    """What was seen, and what was chosen."""

    paths: Sequence[str]
    table: Table
    goal: Goal
    columns: Mapping[str, Chosen | LeftOut]
    recipe: Recipe

    @property
    def features(self) -> list[str]:
        """The columns that are features."""
        return [name for name, column in self.columns.items() if isinstance(column, Chosen)]

    def config(self, schema: str) -> str:
        """The text of the config; `schema` is the path of the schema."""
        return document(self.paths, schema, self.table, self.goal, self.columns, self.recipe)


def draft(paths: Sequence[str], label: str, task: Task | None = None) -> Draft:
    """Looks at a table.

    Args:
      paths: files, folders or patterns.
      label: a column, or an expression over some.
      task: what kind of prediction; None: found from the label's values.

    Raises:
      InputError: the data is no table, nothing can be learned of the label, or no column is a feature.
    """
    table = read(paths)
    aim = goal(table, label, task)
    columns = choose(table, aim)
    drafted = Draft(paths, table, aim, columns, recipe(table, aim, columns))
    if not drafted.features:
        why = [f"{name}: {column.why}" for name, column in columns.items() if isinstance(column, LeftOut)]
        raise InputError("no column of the data can be a feature", "give data with columns that tell something", why)
    return drafted
