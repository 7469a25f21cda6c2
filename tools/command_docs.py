"""Write the tables of docs/reference/commands.md from the table of verbs and their parsers.

python -m tools.command_docs
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pipeline.cli.usage import HEADINGS
from pipeline.cli.verbs import ALIASES, GROUPS, VERBS, list_second_words

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
_BLOCK = re.compile(r"(<!-- generated: commands -->\n).*?(<!-- end -->)", re.DOTALL)

_INTRODUCTION = """
The following tables are generated from the code by `python -m tools.command_docs`; a test compares them. On the
terminal, `python runner.py help` lists the verbs, and `python runner.py help runs show` describes one.

A verb that needs a run or a model, and gets neither `--config` nor another option that selects one, uses the last run
in the folder `--output` (default: `out`) with the config that this run recorded. A line on stderr says which run that
is. Only `run` without `--config` takes `configs/taxi.yaml`.
"""
_SHARED = ("--config", "--set", "--output", "--store", "--models", "--engine", "--json")
"""Options that several verbs share. They are described once."""
Row = tuple[str, str]


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def render(page: str) -> str:
    """Return the page with the block between `<!-- generated: commands -->` and `<!-- end -->` generated again."""
    return _BLOCK.sub(lambda block: block[1] + _render_block() + block[2], page)


def _render_block() -> str:
    arguments = {name: list(_list_arguments(name)) for name in VERBS}
    rows = {flag: _find_common_row(flag, itertools.chain(*arguments.values())) for flag in _SHARED}
    parts = [_INTRODUCTION, "## Verbs\n", _list_verbs(), _list_aliases(), "## Options that several verbs share\n"]
    parts += [_make_table(["option", "meaning"], rows.values())]
    parts += [_describe_verb(name, arguments[name], rows) for name in VERBS]
    return "\n".join(parts)


def _list_arguments(name: str) -> Iterator[Row]:
    """Yield a row for each argument of a verb: its name with the name of its value, and its meaning."""
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(VERBS[name].module).add_arguments(parser)
    for action in parser._actions:
        flag = "".join(action.option_strings[:1])
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        required = "required; " if action.required and flag else ""
        meaning = " ".join((action.help or "").replace("%%", "%").split()).replace("<", "&lt;")
        yield f"`{flag if action.nargs == 0 else f'{flag} {value}'.strip()}`", required + meaning


def _find_common_row(flag: str, rows: Iterable[Row]) -> Row:
    """Return the row of an option with the meaning that most verbs give it."""
    return Counter(row for row in rows if _get_flag(row) == flag).most_common(1)[0][0]


def _get_flag(row: Row) -> str:
    return row[0].strip("`").split()[0]


def _list_verbs() -> str:
    rows = [
        [heading, _join(name for name, verb in VERBS.items() if verb.group == group)]
        for group, heading in HEADINGS.items()
    ]
    for name, group in GROUPS.items():
        default = f"; `{name}` alone means `{name} {group.default}`" if group.default else ""
        rows.append([f"{group.text}{default}", _join(f"{name} {word}" for word in list_second_words(name))])
    return _make_table(["purpose", "verbs"], rows)


def _list_aliases() -> str:
    meanings = ", ".join(f"`{alias}` means `{verb}`" for alias, verb in ALIASES.items())
    return f"Words of other tools: {meanings}. For any other word, the error message suggests a verb.\n"


def _describe_verb(name: str, arguments: list[Row], shared: dict[str, Row]) -> str:
    module = importlib.import_module(VERBS[name].module)
    common = [row for row in arguments if row in shared.values()]
    specific = [row for row in arguments if row not in common]
    text = f"### {name}\n\n{' '.join(module.HELP.split())}\n\n```\n{module.EXAMPLE}\n```\n"
    if specific:
        text += "\n" + _make_table(["argument", "meaning"], specific)
    if common:
        text += f"\nAlso {_join(map(_get_flag, common))}.\n"
    return text


def _join(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _make_table(head: list[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_escape_bar, line))} |\n" for line in lines)


def _escape_bar(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    main()
