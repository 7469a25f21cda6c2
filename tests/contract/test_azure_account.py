"""An account of Azure is found by its name, over HTTPS, with a key, a shared access signature or a login."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.runs.pushed import write_model
from tests.support.servers import azure_account, object_stores

_PUSH = """
import sys

from components.base import object_store
from components.pusher.open_store import open_store
from components.results import version_manifest
from tests.support.runs.pushed import PROVENANCE

model, number = sys.argv[1], int(sys.argv[2])
if number == 1:
    object_store.file_system("az://rides").mkdir("rides")
push_folder = open_store("az://rides/models/taxi")
push_folder.add(model, number, PROVENANCE)
print(version_manifest.verify(push_folder.version(number)).version)
"""
_SIGN = """
import datetime, sys

from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

account, key, permissions = sys.argv[1:]
until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
resources = ResourceTypes.from_string("sco")
print(generate_account_sas(account, key, resources, AccountSasPermissions.from_string(permissions), until))
"""


@pytest.mark.parametrize("kind", [object_stores.AZURITE])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file at /etc/hosts")
def test_azure_account_is_found_by_its_name(kind: str, tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "model", 20))
    with azure_account.serve(tmp_path) as account:
        signatures = [
            account.run(_SIGN, azure_account.NAME, object_stores.KEY, permissions).out.strip()
            for permissions in ("rwdlac", "rl")
        ]
        given = [
            {"AZURE_STORAGE_ACCOUNT_KEY": object_stores.KEY},
            {"AZURE_STORAGE_SAS_TOKEN": signatures[0]},
            account.login,
        ]
        for number, variables in enumerate(given, 1):
            ended = account.run(_PUSH, model, str(number), **variables)
            assert (ended.exit_code, ended.out) == (0, f"{number}\n"), ended.err
        # Do not try all other kinds.
        without = account.run(_PUSH, model, "4", AZURE_TOKEN_CREDENTIALS="EnvironmentCredential")  # noqa: S106 - the name of a kind of login
        denied = account.run(_PUSH, model, "4", AZURE_STORAGE_SAS_TOKEN=signatures[1])
    assert "models/taxi: expected credentials, found none" in without.err
    assert "models/taxi/4/manifest.json: access is denied: This request is not authorized" in denied.err
    expired = tmp_path / "expired"
    expired.mkdir()
    with azure_account.serve(expired, lifetime_seconds=-60) as account:
        refused = account.run(_PUSH, model, "2", **account.login)
    assert "access is denied: " in refused.err
