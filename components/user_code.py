"""The one door to the user's own functions: found by import path or file, blamed by line when they fail."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from components.errors import InputError, PipelineError
from components.names import did_you_mean


def module_of(path: str) -> str:
    """The module of a function's path: `package.module`, or `path/to/module.py`."""
    return path.rpartition(":" if _is_in_file(path) else ".")[0]


def load(path: str) -> Callable[..., Any]:
    """Imports the function at `package.module.function` or `path/to/module.py:function`.

    Raises:
      InputError: there is no such module or function, or importing the module fails.
    """
    module_name = module_of(path)
    name = path[len(module_name) + 1 :]
    try:
        module = _from_file(module_name) if _is_in_file(path) else importlib.import_module(module_name)
    except InputError:
        raise
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
      names: dotted names of modules or packages, or paths of modules; of a package, all its Python files count.
    """
    state = hashlib.sha256()
    for name in names:
        for file in _sources(name):
            state.update(f"{name}/{file.name}\0".encode())
            state.update(file.read_bytes())
    return state.hexdigest()[:16]


_FROM_ROOT = "start the run from the folder that the import path begins in, or install the package"


def _is_in_file(path: str) -> bool:
    return ".py:" in path


def _from_file(name: str) -> ModuleType:
    """The module in a file. As with stock TFX's module files, it may import the modules that lie beside it."""
    file = _file(name)
    # Its own name may be that of a package which is installed; another of this name is not looked for.
    known = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{name} is no module of Python", "name a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    # Pickle finds its functions by this name; a process that is forked has it, too.
    sys.modules[known] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known]
        raise
    return module


def _file(name: str) -> Path:
    file = Path(name).resolve()
    if not file.is_file():
        raise InputError(f"no file {name!r}", "paths are relative to the folder that the command is started in")
    return file


def _sources(name: str) -> list[Path]:
    if name.endswith(".py"):
        return [_file(name)]
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
    if _is_in_file(path):
        return Path(module_of(path)).resolve()
    try:
        spec = importlib.util.find_spec(module_of(path))
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec and spec.origin else None
