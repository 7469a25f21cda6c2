"""Write the tables of docs/reference/config.md from the config models, so that page and program agree.

python -m tools.config_docs
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from components.base.config_section import Task
from components.evaluator.config import (
    DEFAULT_METRICS,
    GROUP_METRICS,
    LOSS_METRICS,
    METRICS,
    NUMBERED_METRICS,
    RETRIEVAL_METRICS,
)
from components.features.config import OPS
from pipeline.authoring.config import Config

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config.md"

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_KINDS = {"int": "whole numbers", "float": "numbers", "bytes": "text or bytes"}
Schema = dict[str, Any]


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def rendered(page: str) -> str:
    """Return the page with each block between `<!-- generated: NAME -->` and `<!-- end -->` generated again."""
    return _BLOCK.sub(lambda block: f"{block[1]}{_BLOCKS[block[2]]()}{block[3]}", page)


def _sections() -> str:
    schema = Config.model_json_schema()
    parts = []
    described = {_inner(field)[0]: name for name, field in schema["properties"].items()}
    for name, field in schema["properties"].items():
        section = schema["$defs"][_inner(field)[0]]
        rows = _table(["field", "value", "default", "meaning"], _fields(section, schema["$defs"], name, "", described))
        parts.append(f"### {name}\n\n{_text(section['description'])}\n\n{rows}")
    return "\n" + "\n".join(parts)


def _operations() -> str:
    """Return the tables of the operations, and of the options that several operations share."""
    definitions = Config.model_json_schema()["$defs"]
    options = {
        name: [_option(*row) for row in _fields(definitions[op.__name__], definitions, name, "", {})]
        for name, op in OPS.built_in.items()
    }
    counts = Counter(option for each in options.values() for option in each)
    shared = [option for option, count in counts.items() if count >= _SHARED]
    rows = []
    for name, op in OPS.built_in.items():
        takes = ", ".join(_KINDS[dtype] for dtype in sorted(op.takes, reverse=True) if not _covered(dtype, op.takes))
        names = ", ".join(option.partition(":")[0] for option in options[name] if option in shared)
        texts = [*([names] if names else []), *(option for option in options[name] if option not in shared)]
        description = _text(definitions[op.__name__]["description"])
        rows.append([f"`{name}`", takes, description, "<br>".join(texts) or "none"])
    table = _table(["operation", "takes", "what it does", "options"], rows)
    bullets = "".join(f"- {option}\n" for option in shared)
    return f"\n{table}\nOptions of several operations:\n\n{bullets}\n"


def _option(name: str, value: str, default: str, meaning: str) -> str:
    default = default if default == _REQUIRED else f"default {default}"
    return f"{name}: {value}; {default}. {meaning}"


def _metrics() -> str:
    rows = []
    numbered = ((name, metric) for name, metric, _ in NUMBERED_METRICS)
    for name, metric in (*METRICS.built_in.items(), *RETRIEVAL_METRICS.items(), *numbered):
        task, *further = sorted(metric.tasks, key=get_args(Task).index)
        loss = next((f"with loss: {loss}" for loss, names in LOSS_METRICS.items() if name in names), "if named")
        loss = "with `evaluation.group`" if name in GROUP_METRICS.get(task, ()) and metric.grouped else loss
        default = "yes" if name in DEFAULT_METRICS[task] else loss
        made = "ours" if metric.module else f"`{metric.tfma_class}`"
        rows.append([f"`{name}`", ", ".join((task, *further)), metric.better, default, made])
    return f"\n{_table(['metric', 'task', 'better is', 'computed', 'TFMA class'], rows)}\n"


_BLOCKS: dict[str, Callable[[], str]] = {"sections": _sections, "operations": _operations, "metrics": _metrics}
_REQUIRED = "has to be given"
_SHARED = 3
"""Number of operations from which on the page describes their common option once."""
_FILLED_IN = {"PipelineConfig": "the file's name"}
"""Sections whose required field `pipeline.authoring.config` fills in."""


def _fields(
    section: Schema, definitions: Schema, root: str, prefix: str, described: dict[str, str]
) -> Iterator[list[str]]:
    """Yield a row for every field of a section, and of the sections inside it.

    Args:
      section: Schema of the section.
      definitions: Schemas of all sections, by the name of their class.
      root: Name of the top-level section.
      prefix: Path of the section below `root`, with a dot at the end.
      described: Paths of the sections that have a table, by the name of their class. A section of a class that is in it
        refers to that table. Sections inside are added.
    """
    for name, field in section.get("properties", {}).items():
        if name == "op":
            # An operation is called by its name, or stands where there is but one.
            continue
        path = f"{prefix}{name}"
        default = f"`{_yaml(field['default'])}`" if field.get("default") is not None else "none"
        required = name in section.get("required", ())
        shown = _FILLED_IN.get(_text(section["title"]), _REQUIRED) if required else default
        inner, step = _inner(field)
        meaning = _text(field.get("description", ""))
        if inner in described:
            meaning = f"{meaning} The section has the fields of `{described[inner]}`."
        yield [f"`{path}`", _value(field, definitions), shown, meaning]
        if inner and inner not in described:
            described[inner] = f"{root}.{path}{step}"
            yield from _fields(definitions[inner], definitions, root, f"{path}{step}.", described)


def _inner(field: Schema) -> tuple[str, str]:
    """Return the section in a field, and the text between their names; operations have another table."""
    for one in _choices(field):
        if reference := _reference(one):
            return reference, ""
    members = _members(field)
    reference = _reference(members) if isinstance(members, dict) else ""
    if items := _reference(field.get("items", {})):
        return items, ".NUMBER"
    return reference, ".NAME" if reference else ""


def _value(field: Schema, definitions: Schema) -> str:
    """Return what a field takes, in words."""
    if _reference(field):
        return "a section"
    if choices := field.get("enum") or ([field["const"]] if "const" in field else []):
        return ", ".join(f"`{choice}`" for choice in choices)
    if len(_choices(field)) > 1:
        choices = [_value(one, definitions) for one in _choices(field) if one.get("type") != "null"]
        return ("; or " if any("," in each for each in choices) else " or ").join(choices)
    kind = field.get("type")
    if kind == "array" and "prefixItems" in field:
        kinds = {"number": _KINDS["float"], "integer": _KINDS["int"], "string": "texts"}
        return f"list of {len(field['prefixItems'])} {kinds[field['prefixItems'][0]['type']]}"
    if kind == "array":
        items = _value(field["items"], definitions).replace("list of", "lists of")
        return "list of " + re.sub(r"\bnumber\b", "numbers", items)
    if kind == "object":
        members = _members(field)
        if not isinstance(members, dict):
            return "mapping"
        is_operation = any(choice.get("title") == "Operation" for choice in members.get("anyOf", ()))
        held = "operations" if is_operation else _value(members, definitions)
        return f"NAME → {held}"
    words = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text"}
    return words[str(kind)] + _bounds(field)


def _choices(field: Schema) -> list[Schema]:
    """Return what a field may hold; for a union with tags, each of its members."""
    nested = [*field.get("anyOf", ()), *field.get("oneOf", ())]
    return [choice for each in nested for choice in _choices(each)] or [field]


def _members(field: Schema) -> Any:
    """Return the schema of a mapping's values, whether or not its names have to match a pattern."""
    return field.get("additionalProperties") or next(iter(field.get("patternProperties", {}).values()), None)


def _bounds(field: Schema) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and most is not None:
        return f", {least:,} to {most:,}"
    bounds = []
    if least is not None:
        bounds.append(f", {least:,} or more")
    if "exclusiveMinimum" in field:
        above = field["exclusiveMinimum"]
        bounds.append(f", {above + 1:,} or more" if field["type"] == "integer" else f", above {above:,}")
    if "exclusiveMaximum" in field:
        bounds.append(f", below {field['exclusiveMaximum']:,}")
    if field.get("minLength") == field.get("maxLength") == 1:
        bounds.append(", one character")
    return "".join(bounds)


def _reference(field: Schema) -> str:
    """Return the name of the section that a field refers to, or nothing."""
    return str(field.get("$ref", "")).rpartition("/")[2]


def _covered(dtype: str, takes: frozenset[Any]) -> bool:
    """Whole numbers need no word of their own where all numbers are taken."""
    return dtype == "int" and "float" in takes


def _yaml(value: object) -> str:
    """Return a default as one would write it in YAML; JSON is YAML, and true is not True in either."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_yaml(inner)}' for key, inner in value.items() if inner is not None)}}}"
    if isinstance(value, str) and re.fullmatch(r"[\w-]+", value):
        return value
    return json.dumps(value)


def _table(head: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _text(text: str) -> str:
    """Return a docstring as one line of Markdown in which nothing is taken for HTML."""
    return " ".join(text.split()).replace("<", "&lt;")


if __name__ == "__main__":
    main()
