"""Tests that links, options, verbs, configs and labels in the README and the pages of docs/ exist."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
import yaml

from components.features import expression
from pipeline.authoring.config import Config, load
from pipeline.cli.verbs import GROUPS, VERBS, find_verb
from tests.support.data.doc_pages import PAGES, ROOT, all_blocks, blocks, prose
from tools import command_docs, config_docs, config_index

_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, in the format of GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def options(verb: str) -> set[str]:
    parser = argparse.ArgumentParser()
    importlib.import_module(VERBS[verb].module).add_arguments(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def commands(page: Path) -> list[str]:
    """Return the arguments of `runner.py` in lines of code blocks and in inline code of a page."""
    lines = [line for _, text in all_blocks(page) for line in text.splitlines()]
    code = [*lines, *_INLINE.findall(prose(page))]
    matches = (re.search(r"runner\.py ((?:--)?[a-z][^`…]*)", line) for line in code)
    return [match[1] for match in matches if match]


@every_page
def test_targets_of_links_exist(page: Path):
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@every_page
def test_verbs_and_options_of_commands_exist(page: Path):
    for command in commands(page):
        words = shlex.split(command, comments=True)
        if words[0] in ("--version", "help"):
            assert " ".join(words[1:]) in {"", *VERBS, *GROUPS, "VERB"}, command
            continue
        verb, arguments = find_verb(words)
        flags = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        assert flags <= options(verb), command


@every_page
def test_options_in_prose_belong_to_a_verb(page: Path):
    known_options = {"--help", "--version", *(flag for verb in VERBS for flag in options(verb))}
    # Options of other programs occur within a whole command, or with `=` and a value. The pattern matches neither.
    mentioned_options = {code.split()[0] for code in _INLINE.findall(prose(page)) if re.match(r"--[a-z-]+( |$)", code)}
    assert mentioned_options <= known_options


def test_page_of_commands_is_generated():
    page = command_docs.PAGE.read_text(encoding="utf-8")
    assert page == command_docs.render(page), "bring it up to date with: python -m tools.command_docs"
    flags = {flag for verb in VERBS for flag in options(verb) if flag.startswith("--")}
    assert flags - {"--help"} <= {code.split()[0] for code in _INLINE.findall(page)}


@every_page
def test_complete_configs_can_be_loaded(page: Path, tmp_path: Path):
    for number, text in enumerate(block for block in blocks(page, "yaml") if block.startswith("# configs/")):
        config = tmp_path / f"page-{number}.yaml"
        config.write_text(text, encoding="utf-8")
        load(str(config))


@every_page
def test_sections_and_fields_of_partial_configs_exist(page: Path):
    sections = {
        field.alias or name: next(
            type_ for type_ in (*get_args(field.annotation), field.annotation) if type_ is not NoneType
        )
        for name, field in Config.model_fields.items()
    }
    for block in blocks(page, "yaml"):
        for section, fields in yaml.safe_load(block).items():
            assert section in sections
            for entry in fields if isinstance(fields, list) else [fields]:
                assert set(entry) <= set(sections[section].model_fields)


def test_labels_on_the_config_page_can_be_parsed():
    lines = re.findall(r"^label: .+$", "\n".join(blocks(ROOT / "docs" / "reference" / "config.md", "")), re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        expression.parse(yaml.safe_load(line)["label"])


def test_tables_of_the_config_page_are_generated():
    page = config_docs.PAGE.read_text(encoding="utf-8")
    assert page == config_docs.rendered(page), "bring it up to date with: python -m tools.config_docs"


@pytest.mark.slow
def test_index_of_the_config_is_generated():
    page = config_index.PAGE.read_text(encoding="utf-8")
    assert page == config_index.render(page), "bring it up to date with: python -m tools.config_index"


LONG = {"commands.md", "config.md", "config-index.md", "mutations.md", "scale.md"}
"""Pages with generated tables."""


def test_pages_have_at_most_1500_words():
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in LONG]
    counts = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert {name: count for name, count in counts.items() if count > 1500} == {}


def test_every_page_is_linked_in_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(index))}
    assert {page for page in (ROOT / "docs").rglob("*.md") if page != index} <= linked


def test_example_config_has_every_section():
    [shown] = blocks(ROOT / "docs" / "reference" / "config-example.md", "yaml")
    # Optional nodes and hooks are left out, because they would change the behaviour of the example.
    sections = {field.alias or name for name, field in Config.model_fields.items() if not _is_optional(field)}
    assert set(yaml.safe_load(shown)) == sections


def _is_optional(field: Any) -> bool:
    return not field.is_required() and field.default in (None, ())
