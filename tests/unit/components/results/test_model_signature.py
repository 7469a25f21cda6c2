"""A push signs a version in model.sig; the commands, the server and model-signing's command verify the signature."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from components.base.errors import InputError
from components.pusher.config import PushConfig
from components.pusher.store import private_key_file
from components.results import model_signature, version_manifest
from components.results.version_manifest import MODEL_SIGNATURE, NAME
from tests.support.programs import programs
from tests.support.runs.command import Ended, call
from tests.support.runs.pushed import PROVENANCE, push
from tests.support.servers.serving import line, serving

_PEM, _PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
_PUSH = """
import sys
from pathlib import Path
from tests.support.runs.pushed import PROVENANCE
from components.pusher.open_store import open_store
folder, model, key = sys.argv[1:]
open_store(folder).add(model, 1, PROVENANCE, Path(key))
"""


class Keys(NamedTuple):
    private: Path
    public: Path


def make_keys(folder: Path, name: str = "key") -> Keys:
    key = ec.generate_private_key(ec.SECP256R1())
    key_files = Keys(folder / f"{name}.pem", folder / f"{name}.pub")
    key_files.private.write_bytes(key.private_bytes(_PEM, _PKCS8, serialization.NoEncryption()))
    key_files.public.write_bytes(key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return key_files


def environment(public: Path | None = None) -> dict[str, str]:
    """Return environment variables with which model_signing can be imported, as if its extra were installed."""
    folders = [str(Path(programs.find("model_signing")).parents[1]), "."]
    key_variable = {} if public is None else {model_signature.PUBLIC_KEY_ENVIRONMENT: str(public)}
    return {"PYTHONPATH": os.pathsep.join(folders), **key_variable}


def push_signed(folder: Path, model: Path, private: Path) -> Path:
    """Push a model as version 1 with a model.sig; return the folder of the version."""
    ended = call([sys.executable, "-c", _PUSH, str(folder), str(model), str(private)], environment())
    assert ended.exit_code == 0, ended.err
    return folder / "1"


def call_runner(verb: str, folder: Path, public: Path | None, *arguments: str) -> Ended:
    command = [sys.executable, "runner.py", "models", verb, *arguments, "--models", str(folder)]
    return call(command, environment(public))


def change_a_byte(version: Path) -> None:
    """Change a byte and write a new manifest, as an attacker without the key could."""
    (version / "saved_model.pb").write_bytes(b"x" + (version / "saved_model.pb").read_bytes()[1:])
    (version / NAME).unlink()
    (version / MODEL_SIGNATURE).rename(kept_signature := version.parent / "kept.sig")
    version_manifest.write(version, PROVENANCE.model_copy(update={"version": 1}))
    kept_signature.rename(version / MODEL_SIGNATURE)


def change_the_manifest(version: Path) -> None:
    (version / NAME).unlink()
    (version / MODEL_SIGNATURE).rename(kept_signature := version.parent / "kept.sig")
    version_manifest.write(version, PROVENANCE.model_copy(update={"version": 1, "blessed_by": "forced: me"}))
    kept_signature.rename(version / MODEL_SIGNATURE)


def remove(version: Path) -> None:
    (version / MODEL_SIGNATURE).unlink()


def replace_by_garbage(version: Path) -> None:
    (version / MODEL_SIGNATURE).write_text(json.dumps({"dsseEnvelope": [1], "verificationMaterial": None}))


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a push folder with the signed version 1. The model and the keys are in the parent folder."""
    folder = tmp_path_factory.mktemp("signed")
    push(folder / "unsigned", 1)
    push_signed(folder / "pushed", folder / "model", make_keys(folder).private)
    return folder / "pushed"


@pytest.mark.needs("model_signing")
def test_signed_version_is_verified(pushed: Path, tmp_path: Path) -> None:
    version, public = str(pushed / "1"), pushed.parent / "key.pub"
    assert "1: as pushed; 2 files, model.sig verified, " in call_runner("verify", pushed, public).out
    # The command of the package must verify the version without options specific to this project.
    arguments = [version, "--signature", f"{version}/{MODEL_SIGNATURE}", "--public_key", str(public)]
    verified = call([sys.executable, "-m", "model_signing", "verify", "key", *arguments], environment())
    assert "Verification succeeded" in verified.out, verified.err
    # Without a public key, only the manifest is verified.
    verified = call_runner("verify", pushed, None)
    assert (verified.exit_code, MODEL_SIGNATURE in verified.out) == (0, False), verified.out
    refused = call_runner("verify", pushed, make_keys(tmp_path).public)
    assert (refused.exit_code, "1: refused: " in refused.out) == (3, True), refused.out


@pytest.mark.needs("model_signing")
@pytest.mark.parametrize("change", [change_a_byte, change_the_manifest, remove, replace_by_garbage])
def test_changed_version_is_not_promoted(pushed: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = tmp_path / "pushed"
    shutil.copytree(pushed, folder)
    change(folder / "1")
    version_manifest.verify(folder / "1")
    refused = call_runner("promote", folder, pushed.parent / "key.pub", "1")
    assert (refused.exit_code, MODEL_SIGNATURE in refused.err) == (2, True), refused.err
    assert "Traceback" not in refused.err


@pytest.mark.needs("model_signing")
def test_server_loads_only_versions_with_a_valid_signature(tmp_path: Path) -> None:
    key = make_keys(tmp_path)
    model = line(tmp_path / "line", 1)
    version = push_signed(tmp_path / "pushed", model, key.private)
    shutil.copytree(version, version.parent / "2")
    (version.parent / "2" / NAME).unlink()
    remove(version.parent / "2")
    version_manifest.write(version.parent / "2", PROVENANCE.model_copy(update={"version": 2}))
    model_config = f'name: "m" base_path: "{version.parent}" model_version_policy {{ all {{}} }}'
    (tmp_path / "models.config").write_text(f"model_config_list {{ config {{ {model_config} }} }}")
    options = f"--model_config_file={tmp_path / 'models.config'}"
    with serving(tmp_path / "server", options, environment=environment(key.public)) as server:
        server.wait("m", 2, "END")
        assert server.states("m") == {1: "AVAILABLE", 2: "END"}
        assert "expected a model.sig, found none" in server.log.read_text()


@pytest.mark.needs("model_signing")
def test_other_kinds_of_keys_are_an_error(tmp_path: Path) -> None:
    push(tmp_path / "pushed", 1)
    key = tmp_path / "rsa.pem"
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(rsa_key.private_bytes(_PEM, _PKCS8, serialization.NoEncryption()))
    arguments = [str(tmp_path / "pushed"), str(tmp_path / "model"), str(key)]
    ended = call([sys.executable, "-c", _PUSH, *arguments], environment())
    assert "expected a private key on an elliptic curve" in ended.err
    assert {path.name for path in (tmp_path / "pushed").iterdir() if path.is_dir()} == {"1"}


def test_environment_variable_must_name_a_file(tmp_path: Path) -> None:
    name = model_signature.PUBLIC_KEY_ENVIRONMENT
    assert model_signature.key_file({}) is None
    for value in ("", str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(InputError, match="expected the PEM file of a key"):
            model_signature.key_file({name: value})


@pytest.mark.skipif(importlib.util.find_spec("model_signing") is not None, reason="model-signing is installed")
def test_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected the package model-signing, which is not installed") as caught:
        model_signature.key_file({model_signature.PUBLIC_KEY_ENVIRONMENT: str(make_keys(tmp_path).public)})
    assert "requirements-signing.txt" in caught.value.remedy


def test_remote_push_folders_cannot_be_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_signature, "key_file", lambda _environment, _name: tmp_path)
    with pytest.raises(InputError, match="expected a local push folder to sign, received gs://b/m"):
        private_key_file({}, PushConfig(), "gs://b/m")
    assert private_key_file({}, PushConfig(), str(tmp_path)) == tmp_path
