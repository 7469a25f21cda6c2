"""The user's own functions are found by path, blamed by line, and noticed when they change."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from components import user_code
from components.errors import GateError, InputError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of the user's, importable for this test."""
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


def test_a_function_is_called(module: str) -> None:
    assert user_code.call("theirs.code.works", 1) == 2


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("theirs.cod.works", "no module 'theirs.cod'"),
        ("theirs.code.work", "did you mean 'works'"),
        ("theirs.broken.f", "broken.py:1: theirs.broken.f failed: ModuleNotFoundError"),
        ("theirs.syntax.f", "syntax.py:1: theirs.syntax.f failed: SyntaxError"),
        ("theirs.code.breaks", "code.py:7: theirs.code.breaks failed: KeyError: 'fare'"),
    ],
)
def test_a_failure_points_at_the_users_line(module: str, path: str, told: str) -> None:
    with pytest.raises(InputError) as refusal:
        user_code.call(path, "fare")
    assert told in refusal.value.headline
    assert refusal.value.exit_code == 2


def test_an_error_that_is_told_already_passes_through(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise GateError("no", "ask again")

    monkeypatch.setattr("theirs.code.works", refuse)
    with pytest.raises(GateError):
        user_code.call("theirs.code.works", 1)


def test_the_digest_changes_with_the_code_and_only_then(module: str, tmp_path: Path) -> None:
    before = user_code.digest("theirs.code"), user_code.digest("theirs")
    assert (user_code.digest("theirs.code"), user_code.digest("theirs")) == before
    code = tmp_path / "theirs" / "code.py"
    code.write_text(code.read_text() + "\n# a change\n")
    after = user_code.digest("theirs.code"), user_code.digest("theirs")
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_a_digest_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no module"):
        user_code.digest("nothing_of_that_name")
