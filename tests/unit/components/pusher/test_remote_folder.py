"""Tests of pushes to Google Cloud Storage, with a fake server that logs the requests.

The order of writes and deletions matters, because other programs can read the folder at any time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.fake_gcs import Bucket, serve
from tests.support.programs import remote_program
from tests.support.runs.command import ROOT, SECONDS, command
from tests.support.servers.forked_command import ForkedCommand

TAXI = "gs://bucket/models/taxi"
ASSETS = "assets/vocabulary"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def environment(bucket: Bucket, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    with serve(bucket, tmp_path) as environment:
        yield environment


def push(folder: Path, environment: Mapping[str, str], times: int, **section: Any) -> list[str]:
    model = folder / "model" / "Format-Serving"
    if not model.exists():
        (model / "variables").mkdir(parents=True)
        (model / "assets").mkdir()
        (model / "saved_model.pb").write_bytes(b"graph" * 1000)
        (model / "variables" / "variables.index").write_bytes(b"values" * 300_000)
        (model / ASSETS).write_text("a\nb\n")
    request = {"directory": TAXI, "model": str(folder / "model"), "out": str(folder / "out"), "push": section}
    arguments = [json.dumps({**request, "times": times})]
    code, out, err = ForkedCommand(remote_program.main, arguments, ROOT, {**os.environ, **environment}).wait(SECONDS)
    assert code == 0, err
    return list(json.loads(out))


def versions(names: Iterable[str]) -> set[str]:
    return {part for name in names if (part := name.split("/")[2]).isdecimal()}


def in_version(bucket: Bucket, version: str) -> list[str]:
    start = f"models/taxi/{version}/"
    return [name.removeprefix(start) for name in bucket.written() if name.startswith(start)]


def test_saved_model_is_written_last_and_old_versions_are_deleted(
    bucket: Bucket, environment: Mapping[str, str], tmp_path: Path
) -> None:
    first, second, third = push(tmp_path, environment, 3, keep=2, directory=TAXI)
    assert int(first) < int(second) < int(third)
    for version in (first, second, third):
        assert in_version(bucket, version) == [
            "manifest.json",
            ASSETS,
            "variables/variables.index",
            "saved_model.pb",
        ]
    assert versions(bucket.files()) == {second, third}
    deleted = [line for line in bucket.log if line.startswith(f"delete models/taxi/{first}/")]
    assert deleted[0] == f"delete models/taxi/{first}/saved_model.pb"
    # The model config must not list the version any more when its files are deleted.
    assert bucket.log.index(deleted[0]) > bucket.log.index("write models/taxi/rollout/models.config")
    registry = json.loads(bucket.files()["models/taxi/registry.json"])
    assert (registry["stable"], len(registry["history"]), "removing" in registry) == (int(third), 3, False)
    assert f"versions: {second} versions: {third}" in bucket.files()["models/taxi/rollout/models.config"].decode()
    manifest = json.loads(bucket.files()[f"models/taxi/{third}/manifest.json"])
    assert manifest["version"] == int(third)

    name = f"models/taxi/{third}/variables/variables.index"
    bucket.objects[name] = bucket.objects[name][:-1] + b"!"
    verified = command("models", "verify", "--models", TAXI, environment=environment)
    assert verified.exit_code == 3
    passed, refused = verified.out.splitlines()
    assert passed.startswith(f"{second}: as pushed; 3 files, unsigned, ")
    assert refused.startswith(f"{third}: refused: {TAXI}/{third}/variables/variables.index was changed after the push")


def test_version_that_another_push_removes_is_not_staged(
    bucket: Bucket, environment: Mapping[str, str], tmp_path: Path
) -> None:
    def remove() -> None:
        (name,) = [name for name in bucket.objects if name.endswith("variables.index")]
        bucket.delete(name)

    bucket.awaited["/saved_model.pb"] = remove
    (result,) = push(tmp_path, environment, 1, directory=TAXI)
    assert result.startswith("MachineError")
    assert "was removed by another push that ran at the same time" in result
    assert "models/taxi/registry.json" not in bucket.objects


def test_interrupted_push_does_not_create_a_version(
    bucket: Bucket, environment: Mapping[str, str], tmp_path: Path
) -> None:
    bucket.refused.append("/variables.index")
    result, version = push(tmp_path, environment, 2, directory=TAXI, keep=1)
    assert result.startswith("InputError")
    assert "variables/variables.index: access is denied" in result
    (broken,) = versions(bucket.written()) - {version}
    assert in_version(bucket, broken) == ["manifest.json", ASSETS]
    # The next push creates a complete version and removes the remains.
    assert in_version(bucket, version)[-1] == "saved_model.pb"
    assert versions(bucket.files()) == {version}
