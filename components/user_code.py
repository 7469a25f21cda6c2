"""The one door to the user's own functions: found by import path, and blamed by file and line when they fail."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.errors import InputError, PipelineError
from components.names import did_you_mean


def load(path: str) -> Callable[..., Any]:
    """Imports the function at `package.module.function`.

    Raises:
      InputError: there is no such module or function, or importing the module fails.
    """
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise InputError(f"no module {error.name!r}, which {path} needs", _FROM_ROOT) from error
        raise _blame(path, error) from error
    except Exception as error:
        raise _blame(path, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        hint = did_you_mean(name, [known for known in vars(module) if callable(getattr(module, known))])
        raise InputError(f"{module_name} has no function {name!r}{hint}", f"define it in {module.__file__}")
    return function  # type: ignore[no-any-return]


def call(path: str, *arguments: Any, **options: Any) -> Any:
    """Calls the user's function at an import path.

    Raises:
      InputError: the function raised; file, line and error are in the headline, the whole error is the cause.
    """
    function = load(path)
    try:
        return function(*arguments, **options)
    except PipelineError:
        raise
    except Exception as error:
        raise _blame(path, error) from error


def digest(*names: str) -> str:
    """A digest of the source of modules and packages, so that a cache notices when code changes.

    Args:
      names: dotted names of modules or packages; of a package, all its Python files count.
    """
    state = hashlib.sha256()
    for name in names:
        for file in _sources(name):
            state.update(f"{name}/{file.name}\0".encode())
            state.update(file.read_bytes())
    return state.hexdigest()[:16]


_FROM_ROOT = "start the run from the folder that the import path begins in, or install the package"


def _sources(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise InputError(f"no module {error.name!r}", _FROM_ROOT) from error
    if spec is None or spec.origin is None:
        raise InputError(f"no module {name!r}", _FROM_ROOT)
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]


def _blame(path: str, error: BaseException) -> InputError:
    """Points at the innermost line of the user's file, or at the function if the error never passed through it."""
    frames = traceback.extract_tb(error.__traceback__)
    file = _file_of(path)
    own = [frame for frame in frames if file and Path(frame.filename).resolve() == file]
    place = f"{own[-1].filename}:{own[-1].lineno}" if own else path
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
    what = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return InputError(
        f"{place}: {path} failed: {type(error).__name__}{': ' if what else ''}{what}",
        "mend the function; the whole traceback is in the node's log",
    )


def _file_of(path: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(path.rpartition(".")[0])
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec and spec.origin else None
