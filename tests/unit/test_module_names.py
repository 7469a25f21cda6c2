"""Tests that modules named in strings and comments exist, because tools that rename modules do not find them there."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_DOTTED = re.compile(r"(?<![\w./-])(?:pipeline|components)(?:\.[a-z_]\w*)+")
# Names that are not modules: attributes of configs, messages and SQL tables, and files of a run. The last alternatives
# are modules that docs/how-to/extending.md and adding-a-node.md add.
_FIELDS = re.compile(
    r"pipeline\.(name|log|pb|yaml|json|html|svg|png|py|Pipeline|pipeline_info|nodes|id|type_id)\b|components\.(size_gate|models\.residual)\b"
)


def _strings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings and comments of a Python file, or the lines of another file, with their line numbers."""
    if file.suffix != ".py":
        yield from enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        return
    with file.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                yield token.start[0], token.string


@functools.cache
def _exists(name: str) -> bool:
    """Return whether a dotted name is a module, or a definition at the top level of a module."""
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module, _, definition = name.rpartition(".")
    parent = ROOT.joinpath(*module.split("."))
    file = parent / "__init__.py" if parent.is_dir() else parent.with_suffix(".py")
    if not file.is_file():
        return "." in module and _exists(module)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return definition in defined | imported


def _unknown(text: str) -> list[str]:
    """Return the names of modules in a text that do not exist."""
    return [name for name in _DOTTED.findall(text) if not _FIELDS.match(name) and not _exists(name)]


def test_every_module_named_in_a_string_exists():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if name.endswith((".py", ".md", ".yaml", ".sh", ".ipynb"))]
    missing = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files
        # Tokenizing is slow, so only tokenize files that contain an unknown name anywhere, including their code.
        if file.exists() and _unknown(file.read_text(encoding="utf-8"))
        for line, text in _strings(file)
        for name in _unknown(text)
    ]
    assert not missing, "\n".join(missing)
