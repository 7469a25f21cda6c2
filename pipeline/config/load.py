"""From a YAML file and `--set` assignments to a checked config."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pipeline.config import document as documents
from pipeline.config.check import of_config
from pipeline.config.document import Document
from pipeline.config.model import Config
from pipeline.config.problems import Problem, of_validation, refuse


@dataclass(frozen=True)
class Loaded:
    """A valid config, and the document that it was read from."""

    config: Config
    document: Document

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raises one InputError that names file and line of every problem; does nothing if there are none."""
        refuse(self.document, problems)


def load(path: str, assignments: Iterable[str] = ()) -> Loaded:
    """Loads and checks a config.

    Args:
      path: a YAML file. Its name is the pipeline's, unless the file names another.
      assignments: `section.field=value`, laid over the file in this order.

    Raises:
      InputError: naming every problem with its file, line and field, and what was expected and received.
    """
    document = documents.read(path)
    documents.assign(document, assignments)
    section = document.values.setdefault("pipeline", {})
    if isinstance(section, dict):
        section.setdefault("name", Path(path).stem.lower())
    try:
        config = Config.model_validate(document.values)
    except ValidationError as error:
        refuse(document, of_validation(error, Config))
        raise
    loaded = Loaded(config, document)
    loaded.refuse(of_config(config))
    return loaded
