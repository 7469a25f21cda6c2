"""Loads and calls user functions. All user code is called from here, so that every error names its file and line."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from components.base.errors import InputError, PipelineError
from components.base.files import open_regular
from components.base.names import did_you_mean


def module_of(path: str) -> str:
    """Return the module part of a function's import path, such as `package.module` or `path/to/module.py`."""
    return path.rpartition(":" if _is_in_file(path) else ".")[0]


def load(path: str) -> Callable[..., Any]:
    """Import a user function. The module is executed once per process.

    Args:
      path: Import path, as `package.module.function` or `path/to/module.py:function`.

    Returns:
      The function.

    Raises:
      InputError: The module or the function does not exist, or importing the module fails.
    """
    module_name = module_of(path)
    name = path[len(module_name) + 1 :]
    module = _import(module_name, path, path)
    function = getattr(module, name, None)
    if not callable(function):
        hint = did_you_mean(name, [attribute for attribute in vars(module) if callable(getattr(module, attribute))])
        raise InputError(f"{module_name} has no function {name!r}{hint}", f"define it in {module.__file__}")
    return function  # type: ignore[no-any-return]


def load_module(name: str) -> ModuleType:
    """Import a module of a user or of an installed package.

    Args:
      name: Dotted name of the module.

    Raises:
      InputError: The module does not exist, or importing it fails. The headline contains the file, line and error.
    """
    return _import(name, f"{name}.", name)


def _import(name: str, path: str, shown: str) -> ModuleType:
    """Import a module.

    Args:
      name: Dotted name of the module, or path of its file.
      path: Import path of a function in the module.
      shown: Name that the error message shows.
    """
    try:
        return _from_file(name) if _is_in_file(path) else importlib.import_module(name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise InputError(f"no module {error.name!r}, which is part of {shown}", _FROM_ROOT) from error
        raise _locate_error(path, error, shown) from error
    # Catch SystemExit as well, because a script without a `__main__` guard may call sys.exit when it is imported.
    except (Exception, SystemExit) as error:
        raise _locate_error(path, error, shown) from error


def call(path: str, *arguments: Any, **options: Any) -> Any:
    """Call a user function.

    Args:
      path: Import path of the function, see `load`.
      arguments: Positional arguments of the function.
      options: Keyword arguments of the function.

    Returns:
      The result of the function.

    Raises:
      InputError: The function raised an exception or called sys.exit. The headline contains the file, line and error,
        and the cause is the exception.
      PipelineError: The function itself raised a PipelineError, which passes through unchanged.
      SystemExit: The function ended with the exit code of SIGTERM, which a handler of this signal raises.
    """
    function = load(path)
    try:
        return function(*arguments, **options)
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        if is_termination(error):
            raise
        raise _locate_error(path, error) from error


def is_termination(error: BaseException) -> bool:
    """Return whether an exception ends a process after SIGTERM. Any other call of sys.exit is a failure."""
    return isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM


def find_failure(path: str, name: str, error: BaseException) -> InputError | None:
    """Find the line of user code in the traceback of an exception, for user code that another library calls.

    Args:
      path: Import path of a class or function in the user's module.
      name: Name of the object that failed, for the error message.
      error: The exception.

    Returns:
      An error with the file and line. None if the exception did not pass through the user's module.
    """
    file = _file_of(path)
    frames = traceback.extract_tb(error.__traceback__)
    passed = file and any(Path(frame.filename).resolve() == file for frame in frames)
    return _locate_error(path, error, name) if passed else None


def digest(*names: str) -> str:
    """Compute a digest of source code and of files, so that a node runs again when one of them changes.

    Args:
      names: Dotted names of modules or packages, or paths of modules, or absolute paths of other files. For a package,
        the digest covers all its Python files.

    Returns:
      The first 16 hexadecimal digits of a SHA-256.

    Raises:
      InputError: A module or a file does not exist.
    """
    state = hashlib.sha256()
    for name in names:
        for path in _sources(name):
            state.update(f"{name}/{path.name}\0".encode())
            with open_regular(str(path)) as file:
                while block := file.read(_BLOCK):
                    state.update(block)
    return state.hexdigest()[:16]


_BLOCK = 1 << 20
_MESSAGE = 300
"""Maximum number of characters of an exception's message in a headline. TensorFlow's messages may print tensors."""
_FROM_ROOT = "start the run from the folder that the import path begins in, or install the package"


def _is_in_file(path: str) -> bool:
    return ".py:" in path


def _from_file(name: str) -> ModuleType:
    """Import a module from a file. It may import other modules in its folder, as in stock TFX."""
    file = _file(name)
    # The file may have the same name as an installed package, so use a unique name for the module.
    unique_name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if unique_name in sys.modules:
        return sys.modules[unique_name]
    spec = importlib.util.spec_from_file_location(unique_name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"expected a Python module, received {name}", "name a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    # Register the module, so that pickle finds its functions by name. Forked processes inherit the entry.
    sys.modules[unique_name] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique_name]
        raise
    return module


def _file(name: str) -> Path:
    file = Path(name).resolve()
    if not file.is_file():
        raise InputError(f"no file {name!r}", "write the path relative to the folder in which you start the command")
    return file


def _sources(name: str) -> list[Path]:
    if name.endswith(".py"):
        return [_file(name)]
    if Path(name).is_absolute():
        if not Path(name).is_file():
            raise InputError(f"expected a file, received {name}, which does not exist", "name a file that exists")
        return [Path(name)]
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise InputError(f"no module {error.name!r}", _FROM_ROOT) from error
    if spec is None or spec.origin is None:
        raise InputError(f"no module {name!r}", _FROM_ROOT)
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]


def _locate_error(path: str, error: BaseException, name: str | None = None) -> InputError:
    """Convert an exception of user code to an InputError.

    Args:
      path: Import path of a function in the user's module.
      error: The exception.
      name: Name of the object that failed. If None, the import path.

    Returns:
      The error, with the innermost line of the user's file, or with the import path if no frame is in that file.
    """
    frames = traceback.extract_tb(error.__traceback__)
    file = _file_of(path)
    user_frames = [frame for frame in frames if file and Path(frame.filename).resolve() == file]
    location = f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else path
    if isinstance(error, SyntaxError):
        location = f"{error.filename}:{error.lineno}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    # After "in user code:", Keras and AutoGraph repeat the traceback. The last line of the message is the error.
    message = lines[-1] if lines[0] == "in user code:" else lines[0]
    message = message.removeprefix(f"{type(error).__name__}: ")
    remedy = "fix the function; the whole traceback is in the node's log"
    if isinstance(error, ModuleNotFoundError):
        remedy = f"install the package with the module {error.name!r} into .venv, or fix the import"
    if "SparseTensor" in message:
        remedy += (
            "; set schema.infer_shapes to true for dense tensors of columns without missing values, as in stock TFX"
        )
    cut = "..." if len(message) > _MESSAGE else ""
    headline = (
        f"{location}: {name or path} failed: {type(error).__name__}{': ' if message else ''}{message[:_MESSAGE]}{cut}"
    )
    return InputError(headline, remedy)


def _file_of(path: str) -> Path | None:
    if _is_in_file(path):
        return Path(module_of(path)).resolve()
    try:
        spec = importlib.util.find_spec(module_of(path))
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec and spec.origin else None
