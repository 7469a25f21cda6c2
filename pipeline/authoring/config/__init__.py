"""Loads and checks a config from a YAML file and `--set` assignments, without importing TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from components.base.config_section import Problem
from components.base.names import column_name
from pipeline.authoring.config import document as documents
from pipeline.authoring.config.cross_checks import check_config
from pipeline.authoring.config.document import Document, convert_validation_error, find_misplaced_booleans, refuse
from pipeline.authoring.config.recorded import drop_defaults
from pipeline.authoring.config.root import Config, extend_config

__all__ = ["Config", "Loaded", "load", "load_recorded"]
_MOST_LETTERS = 63
"""Maximum length of a pipeline's name; see `PipelineConfig.name`."""


@dataclass(frozen=True)
class Loaded:
    """A valid config and its source document."""

    config: Config
    document: Document

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raise one InputError with the file and line of every problem; do nothing without problems."""
        refuse(self.document, problems)


def load(path: str, assignments: Iterable[str] = ()) -> Loaded:
    """Load and check a config.

    Args:
      path: Path of a YAML file. Its name becomes the name of the pipeline, unless `pipeline.name` is set.
      assignments: Assignments `section.field=value`, which override the file in this order.

    Raises:
      InputError: If the config is not valid. The error lists every problem with its file, line and field, and the
        expected and received value.
    """
    document = documents.read(path)
    section = document.values.setdefault("pipeline", {})
    if isinstance(section, dict):
        section.setdefault("name", _get_pipeline_name(Path(path).stem.lower()))
    return _check(document, assignments)


def _get_pipeline_name(stem: str) -> str:
    """Return the name of a file as the name of a pipeline; without what such a name cannot contain."""
    name = re.sub(r"[^a-z0-9_-]+", "_", stem if stem.isascii() else column_name(stem).lower())
    return name.lstrip("_-")[:_MOST_LETTERS] or stem


def load_recorded(name: str, values: dict[str, Any], assignments: Iterable[str] = ()) -> Loaded:
    """Check the config that a run recorded, with assignments.

    Args:
      name: Name of the config for error messages.
      values: Values of all fields, as JSON values.
      assignments: Assignments `section.field=value`, which override the values in this order.

    Raises:
      InputError: If the config is not valid with the assignments, or if an incompatible release recorded it.
    """
    return _check(Document(name, drop_defaults(values, extend_config(values))), assignments)


def _check(document: Document, assignments: Iterable[str]) -> Loaded:
    """Apply assignments to a document, and validate it as a config."""
    documents.assign(document, assignments)
    model = extend_config(document.values)
    problems = find_misplaced_booleans(document, model)
    try:
        config = model.model_validate(document.values)
    except ValidationError as error:
        known = {problem.key for problem in problems}
        refuse(
            document,
            [*problems, *(problem for problem in convert_validation_error(error, model) if problem.key not in known)],
        )
        raise
    refuse(document, problems)
    loaded = Loaded(config, document)
    loaded.refuse(check_config(config))
    return loaded
