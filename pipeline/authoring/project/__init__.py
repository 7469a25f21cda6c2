"""Write the repository of a new pipeline from the files in `templates/`.

The CI file calls the targets of the Makefile, so the same steps run on a developer's machine.
"""

from __future__ import annotations

import random
import re
import tempfile
from pathlib import Path

from components.base.errors import InputError

_TEMPLATES = Path(__file__).with_name("templates")
_FILES = {
    ".github/workflows/ci.yml": "ci.yml",
    ".gitignore": "gitignore",
    "Dockerfile": "Dockerfile",
    "Makefile": "Makefile",
    "README.md": "README.md",
    "compare.py": "compare.py.txt",
    "config.yaml": "config.yaml",
    "network.py": "network.py.txt",
    "pyproject.toml": "pyproject.toml",
    "tests/test_network.py": "test_network.py.txt",
}
"""Path in the repository → name of its template. The endings keep tools from reading templates as code."""
_NAME = "@NAME@"
_HEADER = "minutes,calls,plan,churned"
_ROWS = {"data/sample.csv": 800, "data/holdout.csv": 400}
"""Path of a table → its number of rows. The tables do not share any row."""


def write(folder: Path, name: str | None = None) -> list[Path]:
    """Write the repository, completely or not at all.

    Args:
      folder: New or empty folder.
      name: Name of the pipeline. If None, the name of the folder in lower case, with `-` for other characters.

    Returns:
      Paths of the files, sorted.

    Raises:
      InputError: The folder has content or cannot be written, or the name is not valid.
    """
    folder = folder.absolute()
    pipeline = name if name is not None else re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
    # The name is also the name of an image and of a Kubernetes service.
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", pipeline):
        raise InputError(
            f"--name: expected lower-case letters, digits and -, beginning with a letter, received {pipeline!r}",
            "give a name such as --name churn",
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder}: expected a new or empty folder, received one with content", "name another folder")
    contents = {path: (_TEMPLATES / template).read_text(encoding="utf-8") for path, template in _FILES.items()}
    contents = {path: text.replace(_NAME, pipeline) for path, text in contents.items()}
    rows = _make_rows(sum(_ROWS.values()))
    for path, count in _ROWS.items():
        contents[path] = "\n".join([_HEADER, *rows[:count], ""])
        del rows[:count]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Written to a temporary folder first, so that an interrupted command leaves no half of a repository.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            unfinished = Path(scratch) / folder.name
            for path, text in contents.items():
                (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
                (unfinished / path).write_text(text, encoding="utf-8")
            # A rename replaces an empty folder.
            unfinished.rename(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}", "name another folder") from error
    return [folder / path for path in sorted(contents)]


def _make_rows(count: int) -> list[str]:
    """Return different customers as lines of CSV; those with few minutes and many calls churn more often.

    The lines are the same in every call.
    """
    generator = random.Random(1)  # noqa: S311 - example data, not a secret
    lines: dict[str, None] = {}
    while len(lines) < count:
        plan = generator.choice(["basic", "family", "business"])
        minutes, calls = round(generator.uniform(10, 600), 1), generator.randrange(8)
        risk = calls / 2 - minutes / 150 + (1 if plan == "basic" else 0) + generator.gauss(0, 0.7)
        lines[f"{minutes},{calls},{plan},{int(risk > 0)}"] = None
    return list(lines)
