"""A config is loaded without a search for pydantic's plugins, which models of user code still get."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SEARCH = """
import importlib.metadata
def search(**parameters):
    print("searched", parameters.get("group"))
    return ()
importlib.metadata.entry_points = importlib.metadata.distributions = search
"""
_COMMAND = "from pipeline.cli import main; main(['validate', '--config', 'configs/taxi.yaml'])"
_USER_MODEL = """
from components.compat.pydantic import without_plugins
with without_plugins():
    import pipeline.authoring.config
print("loaded")
import pydantic
pydantic.create_model("Model")
"""


def run(program: str) -> list[str]:
    command = [sys.executable, "-c", _SEARCH + program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_command_does_not_search_for_entry_points() -> None:
    assert not [line for line in run(_COMMAND) if line.startswith("searched")]


def test_model_that_is_defined_later_has_its_plugins() -> None:
    assert run(_USER_MODEL) == ["loaded", "searched pydantic"]
