"""Loads a config from a YAML file and `--set` assignments, and checks it, without importing TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from components.base.config_section import Problem
from pipeline.authoring.config import document as documents
from pipeline.authoring.config.cross_checks import check_config
from pipeline.authoring.config.document import Document, of_booleans, of_validation, refuse
from pipeline.authoring.config.recorded import drop_defaults
from pipeline.authoring.config.root import Config, extend_config

__all__ = ["Config", "Loaded", "load", "load_recorded"]


@dataclass(frozen=True)
class Loaded:
    """A valid config, and the document that it was read from."""

    config: Config
    document: Document

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raise one InputError with the file and line of every problem, if there are any."""
        refuse(self.document, problems)


def load(path: str, assignments: Iterable[str] = ()) -> Loaded:
    """Load and check a config.

    Args:
      path: a YAML file. Its name is the pipeline's, unless the file names another.
      assignments: `section.field=value`, which override the file in this order.

    Raises:
      InputError: naming every problem with its file, line and field, and what was expected and received.
    """
    document = documents.read(path)
    section = document.values.setdefault("pipeline", {})
    if isinstance(section, dict):
        section.setdefault("name", Path(path).stem.lower())
    return _check(document, assignments)


def load_recorded(name: str, values: dict[str, Any], assignments: Iterable[str] = ()) -> Loaded:
    """Check the config that a run recorded, with assignments.

    Args:
      name: Name of the config for error messages.
      values: The values of all fields, as JSON values.
      assignments: `section.field=value`, which override the values in this order.

    Raises:
      InputError: The config is not valid with the assignments, or was recorded by another release.
    """
    return _check(Document(name, drop_defaults(values, extend_config(values))), assignments)


def _check(document: Document, assignments: Iterable[str]) -> Loaded:
    documents.assign(document, assignments)
    model = extend_config(document.values)
    problems = of_booleans(document, model)
    try:
        config = model.model_validate(document.values)
    except ValidationError as error:
        known = {problem.key for problem in problems}
        refuse(document, [*problems, *(each for each in of_validation(error, model) if each.key not in known)])
        raise
    refuse(document, problems)
    loaded = Loaded(config, document)
    loaded.refuse(check_config(config))
    return loaded
