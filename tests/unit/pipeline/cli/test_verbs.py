"""Tests for the verbs of the command line: parsing, help, suggestions and aliases."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex

import pytest

from components.base.errors import InputError
from pipeline.cli import usage
from pipeline.cli.verbs import ALIASES, GROUPS, VERBS, find_verb
from tests.support.runs.command import ROOT, light_command


def test_command_line_has_17_verbs_and_groups():
    assert len({name.split()[0] for name in VERBS}) == 17
    assert {name.split()[0] for name in VERBS if " " in name} == set(GROUPS)
    assert all(verb.group == name.split()[0] for name, verb in VERBS.items() if " " in name)


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_shows_an_example(name: str):
    ended = light_command("help", *name.split())
    assert (ended.exit_code, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: python runner.py {name} ")
    assert f"example:\n  python runner.py {name} " in ended.out


@pytest.mark.parametrize("name", VERBS)
def test_example_of_a_verb_can_be_parsed(name: str):
    module = importlib.import_module(VERBS[name].module)
    words = shlex.split(module.EXAMPLE.partition(" > ")[0])
    assert words[:2] == ["python", "runner.py"]
    verb, options = find_verb(words[2:])
    assert verb == name
    assert isinstance(usage.make_parser(name, module).parse_args(options), argparse.Namespace)


def test_overview_names_every_verb():
    overview = light_command("help")
    assert (overview.exit_code, overview.err) == (0, "")
    assert overview == light_command("--help")
    words = set(re.findall(r"[\w-]+", overview.out))
    assert words >= {word for name in VERBS for word in name.split()}
    without_arguments = light_command()
    assert (without_arguments.exit_code, without_arguments.out) == (2, overview.out)


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_describes_its_verbs(group: str):
    ended = light_command("help", group)
    assert (ended.exit_code, ended.err) == (0, "")
    assert ended == light_command(group, "--help")
    for name, verb in VERBS.items():
        assert (verb.group == group) == bool(re.search(rf"^  {name} +{re.escape(verb.text)}$", ended.out, re.MULTILINE))


def test_group_without_a_default_prints_its_help():
    ended = light_command("store")
    assert ended.exit_code == 2
    assert ended.out == light_command("help", "store").out


@pytest.mark.parametrize(
    ("words", "verb", "options"),
    [
        (["--local"], "run", ["--local"]),
        (["--airflow", "--output", "dags"], "run", ["--airflow", "--output", "dags"]),
        (["train", "--json"], "run", ["--json"]),
        (["check"], "validate", []),
        (["runs"], "runs list", []),
        (["runs", "--limit", "3"], "runs list", ["--limit", "3"]),
        (["runs", "show", "r1"], "runs show", ["r1"]),
        (["models", "--json"], "models list", ["--json"]),
        (["store"], "store", []),
    ],
)
def test_verb_and_options_are_parsed(words: list[str], verb: str, options: list[str]):
    assert find_verb(words) == (verb, options)


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        *((name.split()[1], name) for name in VERBS if " " in name and name.split()[1] not in {"list", "run", "serve"}),
        ("serve-ui", "runs serve"),
        ("run-node", "node run"),
        ("metadata migrate", "store migrate"),
        ("promot 3", "models promote"),
        ("model promote", "models promote"),
        ("modles", "models"),
        ("runs shw", "runs show"),
        ("pridict", "predict"),
        ("trian", "run"),
        ("Run", "run"),
    ],
)
def test_verb_is_suggested_for_a_former_or_mistyped_name(typed: str, suggestion: str):
    with pytest.raises(InputError, match=f"; did you mean '{suggestion}'\\?\n"):
        find_verb(typed.split())


def test_second_word_after_an_option_is_named():
    ended = light_command("models", "--config", "taxi.yaml", "promote", "3")
    assert ended.exit_code == 2
    assert ended.err.startswith("error: expected models promote before the options, received promote after an option\n")


def test_error_of_an_unknown_verb_lists_the_verbs_of_the_group():
    with pytest.raises(
        InputError, match=r"unknown verb 'node 2026'; expected node and one of compile, run, worker-pool\n"
    ):
        find_verb(["node", "2026"])
    ended = light_command("qwertz")
    assert (ended.exit_code, ended.out) == (2, "")
    assert ended.err.splitlines()[0] == "error: unknown verb 'qwertz'"


def test_aliases_refer_to_verbs():
    assert set(ALIASES.values()) <= set(VERBS)
    assert not set(ALIASES) & {*VERBS, *GROUPS}


def test_version_is_printed():
    ended = light_command("--version")
    assert (ended.exit_code, ended.err) == (0, "")
    assert re.fullmatch(r"runner\.py [\d.]+, tfx [\d.]+, tensorflow [\d.]+, Python [\d.]+\n", ended.out)
    assert f'\nversion = "{usage.VERSION}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
