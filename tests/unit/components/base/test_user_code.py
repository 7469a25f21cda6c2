"""User functions are loaded by path; errors name the user's file and line, and digests cover the code."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from components.base import user_code
from components.base.errors import GateError, InputError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Yield a user package that can be imported during this test."""
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "code.py").write_text(
        "def works(x):\n    return x + 1\n\n\ndef breaks(x):\n    y = {}\n    return y[x]\n"
    )
    (package / "broken.py").write_text("import nothing_of_that_name\n")
    (package / "syntax.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "theirs"
    for name in [name for name in sys.modules if name.split(".")[0] == "theirs"]:
        del sys.modules[name]


def test_function_is_called(module: str) -> None:
    assert user_code.call("theirs.code.works", 1) == 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("theirs.cod.works", "no module 'theirs.cod'"),
        ("theirs.code.work", "did you mean 'works'"),
        ("theirs.broken.f", "broken.py:1: theirs.broken.f failed: ModuleNotFoundError"),
        ("theirs.syntax.f", "syntax.py:1: theirs.syntax.f failed: SyntaxError"),
        ("theirs.code.breaks", "code.py:7: theirs.code.breaks failed: KeyError: 'fare'"),
    ],
)
def test_error_names_the_users_file_and_line(module: str, path: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        user_code.call(path, "fare")
    assert message in raised.value.headline
    assert raised.value.exit_code == 2


def test_exit_of_user_code_is_a_failure_unless_it_is_a_signal(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text("import sys\n\n\ndef run(code):\n    sys.exit(code)\n")
    (tmp_path / "script.py").write_text("import sys\n\nsys.exit(0)\n")
    path = f"{tmp_path}/exits.py:run"
    for code in (0, 3, "no rows", None):
        with pytest.raises(InputError, match=r"exits.py:5: .* failed: SystemExit") as raised:
            user_code.call(path, code)
        assert raised.value.exit_code == 2
    with pytest.raises(InputError, match=r"script\.py:3: .* failed: SystemExit: 0"):
        user_code.call(f"{tmp_path}/script.py:run")
    # A user's run_fn may handle SIGTERM by exiting with 128 + 15. This is not an error of the code.
    with pytest.raises(SystemExit):
        user_code.call(path, 143)


def test_failure_of_code_that_another_library_calls_is_reported_with_its_line(module: str) -> None:
    with pytest.raises(KeyError) as raised:
        user_code.load("theirs.code.breaks")("fare")
    failure = user_code.find_failure("theirs.code.Task", "Check", raised.value)
    assert failure is not None
    assert failure.headline.endswith("code.py:7: Check failed: KeyError: 'fare'")
    with pytest.raises(ZeroDivisionError) as elsewhere:
        divmod(1, 0)
    assert user_code.find_failure("theirs.code.Task", "Check", elsewhere.value) is None


def test_last_line_of_a_nested_traceback_is_reported(module: str, tmp_path: Path) -> None:
    text = "in user code:\n\n    File train.py, line 3\n\n    TypeError: Failed to convert SparseTensor(" + "x" * 900
    (tmp_path / "theirs" / "keras.py").write_text(f"def fit():\n    raise TypeError({text!r})\n")
    with pytest.raises(InputError) as raised:
        user_code.call("theirs.keras.fit")
    failed = raised.value.headline.partition("keras.py:2: ")[2]
    assert failed.startswith("theirs.keras.fit failed: TypeError: Failed to convert SparseTensor(xxx")
    assert failed.endswith("xxx...")
    assert len(failed) < 400
    assert "schema.infer_shapes" in raised.value.remedy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Yield a user module outside a package, which imports a neighbour and has the name of an installed package."""
    folder = tmp_path / "stock"
    folder.mkdir()
    (folder / "constants_of_stock.py").write_text("ONE = 1\n")
    path = folder / "yaml.py"
    path.write_text("from constants_of_stock import ONE\n\n\ndef works(x):\n    return x + ONE\n")
    yield path
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith(("yaml_", "constants_of_stock"))]:
        del sys.modules[name]


def test_function_in_a_file_is_called(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_code.call(f"{file}:works", 1) == 2
    function = user_code.load(f"{file}:works")
    monkeypatch.chdir(file.parent)
    assert user_code.load("yaml.py:works") is function, "it is loaded once"
    assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 - our own bytes
    with pytest.raises(InputError, match=r"yaml\.py:5: .*yaml\.py:works failed: TypeError"):
        user_code.call(f"{file}:works", "fare")
    with pytest.raises(InputError, match=r"yaml\.py has no function 'work'; did you mean 'works'\?"):
        user_code.load(f"{file}:work")


def test_missing_or_broken_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=r"broken\.py:1: .*:f failed: ZeroDivisionError"):
        user_code.load(f"{tmp_path}/broken.py:f")
    sys.path.remove(str(tmp_path))
    for function in (user_code.load, lambda path: user_code.digest(user_code.module_of(path))):
        with pytest.raises(InputError, match=r"no file 'none/mine\.py'"):
            function("none/mine.py:f")


def test_digest_of_a_file_changes_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("A = 1\n")
    before = user_code.digest(user_code.module_of(f"{file}:f"))
    assert user_code.digest(str(file)) == before
    file.write_text("A = 2\n")
    assert user_code.digest(str(file)) != before


def test_pipeline_error_of_user_code_is_not_wrapped(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise GateError("rejected", "try again")

    monkeypatch.setattr("theirs.code.works", refuse)
    with pytest.raises(GateError):
        user_code.call("theirs.code.works", 1)


def test_digest_changes_only_with_the_code(module: str, tmp_path: Path) -> None:
    before = user_code.digest("theirs.code"), user_code.digest("theirs")
    assert (user_code.digest("theirs.code"), user_code.digest("theirs")) == before
    code = tmp_path / "theirs" / "code.py"
    code.write_text(code.read_text() + "\n# a change\n")
    after = user_code.digest("theirs.code"), user_code.digest("theirs")
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_digest_of_a_missing_module_is_an_error() -> None:
    with pytest.raises(InputError, match="no module"):
        user_code.digest("nothing_of_that_name")


def test_missing_package_is_named_in_the_remedy(module: str) -> None:
    with pytest.raises(InputError) as raised:
        user_code.load("theirs.broken.f")
    assert raised.value.remedy.startswith("install the package with the module 'nothing_of_that_name' into .venv")
