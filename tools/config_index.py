"""Write the tables of docs/reference/config-index.md: which modules read each field of the config.

python -m tools.config_index

mypy resolves the type of every expression in `components` and `pipeline`. An access such as `config.training.steps` is
an attribute of a section's class, so fields with the same name in different sections are kept apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from mypy import build, options
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.traverser import NameAndMemberCollector
from mypy.types import Instance, Type, UnionType, get_proper_type
from pydantic import BaseModel

from pipeline.authoring.config import Config

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "config-index.md"
_MARK = "<!-- generated -->\n"
_PACKAGES = ("components", "pipeline")
_LISTED = 3
"""Number of modules that the page names for a field."""
_OPERATIONS = "components.features"
"""Classes of operations are in this package. docs/reference/config.md describes them; they act on themselves."""

Readers = Mapping[tuple[str, str], Counter[str]]


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def render(page: str) -> str:
    """Return the page with the tables after its mark generated again."""
    readers = find_readers()
    tables = (_table(path, section, readers) for path, section in _sections(Config, ""))
    return f"{page.partition(_MARK)[0]}{_MARK}\n" + "\n".join(table for table in tables if table)


def find_readers() -> Readers:
    """Count the reads of each attribute: (full name of its class, attribute) → path of the module → reads."""
    settings = options.Options()
    parse_config_file(settings, lambda: None, str(ROOT / "pyproject.toml"))
    settings.incremental, settings.export_types, settings.preserve_asts = False, True, True
    settings.plugins = []
    sources = create_source_list([str(ROOT / package) for package in _PACKAGES], settings)
    result = build.build(sources, settings)
    readers: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, module in result.files.items():
        if name.partition(".")[0] in _PACKAGES:
            path = str(Path(module.path).relative_to(ROOT))
            collector = NameAndMemberCollector()
            module.accept(collector)
            for member in collector.member_exprs:
                for class_name in _class_names(result.types.get(member.expr)):
                    readers[class_name, member.name][path] += 1
    return readers


def _class_names(kind: Type | None) -> Iterator[str]:
    """Yield the full names of the class of a type, or of the members of a union, and of their bases in the project."""
    proper = get_proper_type(kind)
    if isinstance(proper, UnionType):
        for item in proper.items:
            yield from _class_names(item)
    elif isinstance(proper, Instance):
        names = (base.fullname for base in proper.type.mro)
        # Without `object`: its attributes would count for every class.
        yield from (name for name in names if name.partition(".")[0] in _PACKAGES)


def _sections(section: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the path and the class of every section below a section, in the order of the config."""
    for name, field in section.model_fields.items():
        key = f"{path}{field.alias or name}"
        for model in dict.fromkeys(_models(field.annotation)):
            if not model.__module__.startswith(_OPERATIONS) or not path:
                yield key, model
                yield from _sections(model, f"{key}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _table(path: str, section: type[BaseModel], readers: Readers) -> str:
    """Return the table of a section: fields that the same modules read share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, field in section.model_fields.items():
        if not any(_models(field.annotation)):
            rows.setdefault(_find_modules(section, name, readers), []).append(f"`{field.alias or name}`")
    lines = [
        f"| {', '.join(fields)} | {', '.join(f'`{module}`' for module in modules) or 'none'} |"
        for modules, fields in rows.items()
    ]
    return "\n".join([f"### {path}", "", "| field | modules |", "| --- | --- |", *lines, ""]) if lines else ""


def _find_modules(section: type[BaseModel], field: str, readers: Readers) -> tuple[str, ...]:
    """Return the modules that read a field most often; modules of the config only if no other reads it."""
    counts: Counter[str] = Counter()
    for base in section.__mro__:
        counts += readers.get((f"{base.__module__}.{base.__qualname__}", field), Counter())
    acting = {module: count for module, count in counts.items() if not _is_config(module)} or counts
    ranked = sorted(acting, key=lambda module: (-acting[module], module))
    return tuple(module.removesuffix(".py") for module in ranked[:_LISTED])


def _is_config(module: str) -> bool:
    return module.endswith(("/config.py", "_config.py")) or module.startswith("pipeline/authoring/config/")


if __name__ == "__main__":
    main()
