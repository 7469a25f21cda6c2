"""Tests for options and fields that name local folders, which reject URLs."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.cli.verbs import VERBS

URL = "gs://bucket/out"


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        *((verb, "--output") for verb in ("run", "validate", "plan", "doctor", "predict", "runs list")),
        *((verb, "--into") for verb in ("node compile", "due", "runs report", "runs site")),
        ("init", "--config"),
        ("init", "--schema"),
        ("monitor", "--html"),
        ("monitor", "--prometheus"),
        ("node run", "--logs"),
    ],
)
def test_url_is_rejected_for_local_paths(verb: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(VERBS[verb].module).add_arguments(parser)
    for action in parser._actions:
        action.required = False
        if not action.option_strings:
            action.nargs = "?"
    name = next(action.dest for action in parser._actions if option in action.option_strings)
    assert str(getattr(parser.parse_args([option, "out/here"]), name)) == str(Path("out/here"))
    with pytest.raises(SystemExit):
        parser.parse_args([option, URL])
    assert f"argument {option}: expected a path on this machine, received the URL {URL}" in capsys.readouterr().err


def test_output_of_runs_must_be_a_local_folder() -> None:
    with pytest.raises(ValidationError, match=f"expected a folder on this machine, received the URL {URL}"):
        RuntimeConfig(output=URL)
    assert RuntimeConfig(output="out", artifacts=URL).artifacts == URL
