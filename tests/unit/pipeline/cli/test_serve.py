"""Tests of the options of `runner.py serve` for the request log; wrong options are refused before the server starts."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import pytest

from components.base.errors import InputError
from pipeline.cli import serve

SECRET = "a secret of 23 bytes..."  # noqa: S105  # pragma: allowlist secret


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Return a push folder whose newest version describes its columns."""
    file = tmp_path / "taxi" / "2" / "assets.extra" / "request_schema.json"
    file.parent.mkdir(parents=True)
    columns = {"company": {"dtype": "string"}, "fare": {"dtype": "float32"}}
    file.write_text(json.dumps({"columns": columns, "other_columns": ["tips"]}))
    return tmp_path / "taxi"


def start(models: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment of the server that the verb would start."""
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, environment: started.append((command, environment)))
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    serve.run(parser.parse_args(["--models", str(models), "--log", "requests", *arguments]))
    return started[0]


def test_server_gets_the_options_of_its_log(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFX_PIPELINE_LOG_SECRET", SECRET)
    private = ("--log-private", "company=hash", "--log-private", "tips=drop", "--log-private", "trip=hash")
    limits = ("--log-rate", "0.1", "--log-max-bytes", "5000", "--log-max-days", "7", "--log-key", "trip")
    command, environment = start(models, monkeypatch, *private, *limits)
    assert [word for word in command if word.startswith("--request_log")] == [
        "--request_log=requests",
        "--request_log_rate=0.1",
        "--request_log_max_bytes=5000",
        "--request_log_max_days=7.0",
        "--request_log_key=trip",
        "--request_log_private=company=hash",
        "--request_log_private=tips=drop",
        "--request_log_private=trip=hash",
    ]
    assert environment["TFX_PIPELINE_LOG_SECRET"] == SECRET
    # A secret must not be visible in the list of processes.
    assert not any(SECRET in word for word in command)


def test_private_column_must_be_a_column_of_the_model(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="expected a column of version 2, received 'compnay'; did you mean 'company'"):
        start(models, monkeypatch, "--log-private", "compnay=drop")


@pytest.mark.parametrize(("secret", "length"), [(None, 0), ("short", 5)])
def test_hash_needs_a_long_secret(
    models: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None, length: int
) -> None:
    monkeypatch.delenv("TFX_PIPELINE_LOG_SECRET", raising=False)
    if secret is not None:
        monkeypatch.setenv("TFX_PIPELINE_LOG_SECRET", secret)
    expected = f"TFX_PIPELINE_LOG_SECRET: expected a secret of at least 16 bytes, received {length}"
    with pytest.raises(InputError, match=expected):
        start(models, monkeypatch, "--log-private", "company=hash")
    assert start(models, monkeypatch, "--log-private", "company=drop")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--log-rate", "1.5"), "expected a share from 0 to 1, received '1.5'"),
        (("--log-rate", "nan"), "expected a share from 0 to 1, received 'nan'"),
        (("--log-max-bytes", "0"), "expected a positive number of bytes, received '0'"),
        (("--log-max-bytes", "1.5"), "expected a positive number of bytes, received '1.5'"),
        (("--log-max-days", "-1"), "expected a positive number of days, received '-1'"),
        (("--log-private", "fare"), "expected COLUMN=hash or COLUMN=drop, received 'fare'"),
        (("--log-private", "fare=encrypt"), "expected COLUMN=hash or COLUMN=drop, received 'fare=encrypt'"),
    ],
)
def test_invalid_option_is_refused(
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    with pytest.raises(SystemExit):
        start(models, monkeypatch, *arguments)
    assert message in capsys.readouterr().err
