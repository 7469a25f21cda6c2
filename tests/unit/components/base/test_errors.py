"""Errors keep headline, details and remedy even if only their text crosses a process or Beam boundary."""

from __future__ import annotations

import errno
import pickle

import pytest

from components.base.errors import GateError, InputError, MachineError, PipelineError, errors_of_beam, find


@pytest.mark.parametrize(("kind", "code"), [(MachineError, 1), (InputError, 2), (GateError, 3)])
def test_error_is_parsed_from_its_text(kind: type[PipelineError], code: int) -> None:
    error = kind("a.csv, row 7: expected 18 fields,\nreceived 17", "fix the row", ["row 9 too", "and row 11"])
    wrapped = RuntimeError(
        f"Traceback ...\ncomponents.errors.{kind.__name__}: {error} [while running 'Read/ParDo(X)']\n"
    )
    parsed = find(wrapped)
    assert isinstance(parsed, kind)
    assert parsed.exit_code == code
    assert parsed.headline == "a.csv, row 7: expected 18 fields, received 17"
    assert parsed.details == ("row 9 too", "and row 11")
    assert parsed.remedy == "fix the row"


def test_error_is_found_among_the_causes() -> None:
    cause = InputError("no such column", "choose another")
    outer = RuntimeError("node failed")
    outer.__cause__ = cause
    assert find(outer) is cause


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(GateError("no", "try again", ["why"])))  # noqa: S301 - our own
    assert (error.headline, error.remedy, error.details, error.exit_code) == ("no", "try again", ("why",), 3)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/out/x"),
        RuntimeError("ResourceExhaustedError: /out/x; No space left on device [Op:SaveV2]"),
        RuntimeError("database or disk is full"),
    ],
)
def test_every_form_of_a_full_disk_is_recognized(error: Exception) -> None:
    parsed = find(error)
    assert isinstance(parsed, MachineError)
    assert "the disk is full" in parsed.headline


def test_text_of_another_error_is_not_parsed() -> None:
    assert find(ValueError("error: something")) is None


def test_error_of_beam_is_found_and_a_local_error_keeps_its_cause() -> None:
    input_error = InputError("no such column", "name another one")
    with pytest.raises(InputError, match="no such column") as raised, errors_of_beam():
        raise RuntimeError(f"{input_error} [while running 'Map']")
    assert isinstance(raised.value.__cause__, RuntimeError)
    cause = KeyError("column")
    with pytest.raises(InputError) as raised, errors_of_beam():
        raise input_error from cause
    assert (raised.value, raised.value.__cause__) == (input_error, cause)
    with pytest.raises(KeyError), errors_of_beam():
        raise cause
