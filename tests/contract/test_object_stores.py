"""Every object store: conditional writes, killed pushes, concurrent pushes, and errors, on real servers."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from components.base.errors import InputError, MachineError
from components.data import file_io
from components.pusher import fsspec_objects, gcs_objects
from components.pusher.bucket_objects import ObjectChangedError, Objects
from components.pusher.open_store import open_store
from components.pusher.serving_state import Stages, State
from components.pusher.store import find_removable
from components.results import version_manifest
from components.results.version_manifest import LocalFolder
from pipeline.core.artifact_copies import ArtifactCopies
from pipeline.registry.mirror import mirror
from pipeline.registry.versions import PushFolder
from tests.support.fakes import fake_gcs
from tests.support.runs.command import call
from tests.support.runs.pushed import LARGE, PROVENANCE, write_model
from tests.support.servers import object_stores
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.serving import line, serving

CONTEXT = multiprocessing.get_context("spawn")
MEBIBYTE = 1 << 20


@pytest.fixture(params=object_stores.SERVERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    with object_stores.serve(request.param, tmp_path) as store:
        yield store


def open_objects(url: str) -> Objects:
    return (gcs_objects if url.startswith("gs://") else fsspec_objects).open_objects(url)


def test_object_is_written_only_if_it_is_unchanged(store: ObjectStore) -> None:
    objects = open_objects(f"{store.url}/a folder")
    with pytest.raises(FileNotFoundError):
        objects.read("x.json")
    objects.write("x.json", b"1", None)
    with pytest.raises(ObjectChangedError):
        objects.write("x.json", b"2", None)
    content, first_tag = objects.read("x.json")
    assert content == b"1"
    objects.write("x.json", b"2", first_tag)
    with pytest.raises(ObjectChangedError):
        objects.write("x.json", b"3", first_tag)
    content, second_tag = objects.read("x.json")
    assert content == b"2"
    objects.delete("x.json")
    objects.delete("x.json")
    with pytest.raises(ObjectChangedError):
        objects.write("x.json", b"3", second_tag)
    objects.write("x.json", b"", None)
    objects.write("b/y.json", b"y", None)
    assert sorted(objects.list_names("")) == ["b/y.json", "x.json"]
    assert objects.list_names("b/") == ["b/y.json"]
    assert objects.list_names("c/") == []
    assert objects.read("x.json")[0] == b""


def test_large_object_survives_the_round_trip(store: ObjectStore, tmp_path: Path) -> None:
    objects = open_objects(store.url)
    content = np.random.default_rng(0).bytes(37 * MEBIBYTE + 5)
    (tmp_path / "large").write_bytes(content)
    with (tmp_path / "large").open("rb") as source:
        objects.upload("large", source)
    with objects.open("large") as file:
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(content).digest()
    with pytest.raises(FileNotFoundError):
        objects.open("none")


class _KillingFolder(LocalFolder):
    """A folder whose large file kills this process when most of it has been read."""

    def open(self, path: str) -> BinaryIO:
        file = super().open(path)
        if path == LARGE and self._is_described:
            return _KillingFile(file)  # type: ignore[return-value]
        return file

    _is_described = False


class _KillingFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file, self._read = file, 0

    def read(self, size: int = -1) -> bytes:
        if self._read > 40 * MEBIBYTE:
            os.kill(os.getpid(), signal.SIGKILL)
        block = self._file.read(size)
        self._read += len(block)
        return block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _KillingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def push_until_killed(url: str, model: str, number: int) -> None:
    from components.pusher import bucket_folder

    describe = version_manifest.describe

    def describe_then_kill(folder: Any) -> Any:
        files = describe(folder)
        folder._is_described = True
        return files

    version_manifest.describe = describe_then_kill
    bucket_folder._open_model = _KillingFolder
    open_store(url).add(model, number, PROVENANCE)


@pytest.mark.slow
def test_push_that_is_killed_in_an_upload_leaves_no_version(store: ObjectStore, tmp_path: Path) -> None:
    url = f"{store.url}/models/taxi"
    push_folder = open_store(url)
    model = write_model(tmp_path / "model", megabytes=50)
    push_folder.add(str(model), 1, PROVENANCE)
    process = CONTEXT.Process(target=push_until_killed, args=(url, str(model), 2))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (push_folder.versions(), push_folder.leftovers()) == ([1], [2])
    assert "2/manifest.json" in open_objects(url).list_names("2/")
    assert f"2/{LARGE}" not in open_objects(url).list_names("2/")
    # The number is not used again, and `push.keep` of the next push removes the files.
    assert push_folder.add(str(model), 1, PROVENANCE) == (f"{url}/3", 3)
    assert push_folder.versions() == [1, 3]
    assert version_manifest.verify(push_folder.version(3)).version == 3
    assert find_removable(push_folder, State(), keep=1) == (1, 2)
    push_folder.remove(2)
    assert open_objects(url).list_names("2/") == []


def push_and_promote(url: str, model: str, barrier: Any) -> None:
    push_folder = open_store(url)
    push_folder.read()
    barrier.wait()
    _, number = push_folder.add(model, 1, PROVENANCE)
    push_folder.change(lambda now: now.change_stages("promote", Stages(stable=number), model))


@pytest.mark.slow
def test_concurrent_pushes_make_separate_versions(store: ObjectStore, tmp_path: Path) -> None:
    url, count = f"{store.url}/models/taxi", 4
    barrier = CONTEXT.Barrier(count)
    models = [write_model(tmp_path / f"model{index}", megabytes=1, seed=index) for index in range(count)]
    processes = [CONTEXT.Process(target=push_and_promote, args=(url, str(model), barrier)) for model in models]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    push_folder = open_store(url)
    assert push_folder.versions() == [1, 2, 3, 4]
    digests = {version_manifest.verify(push_folder.version(number)).files[LARGE].sha256 for number in range(1, 5)}
    assert digests == {hashlib.sha256((model / LARGE).read_bytes()).hexdigest() for model in models}
    state = push_folder.read()
    assert {change.by for change in state.history} == {str(model) for model in models}
    assert all(
        change.before == previous.after for previous, change in zip(state.history, state.history[1:], strict=False)
    )
    config = open_objects(url).read("rollout/models.config")[0].decode()
    assert f'key: "stable" value: {state.stable} ' in config


def test_files_are_found_and_read(store: ObjectStore) -> None:
    if store.url.startswith("gs://"):
        pytest.skip("TensorFlow reads gs://, and knows no other address than Google's")
    objects = open_objects(f"{store.url}/rows")
    for name in ("a/1.csv", "a/2.csv", "b[1]/3.csv"):
        objects.write(name, name.encode() * 3, None)
    files = file_io.file_system(store.url)
    assert files.glob(f"{store.url}/rows/a/*.csv") == [f"{store.url}/rows/a/{number}.csv" for number in (1, 2)]
    assert files.glob(f"{store.url}/rows/b[[]1]/*.csv") == [f"{store.url}/rows/b[1]/3.csv"]
    assert sorted(files.listdir(f"{store.url}/rows")) == ["a", "b[1]"]
    assert [files.isdir(f"{store.url}/rows{path}") for path in ("", "/a", "/a/1.csv", "/c")] == [
        True,
        True,
        False,
        False,
    ]
    assert [files.exists(f"{store.url}/rows{path}") for path in ("/a", "/a/1.csv", "/c")] == [True, True, False]
    with file_io.open_binary(f"{store.url}/rows/a/1.csv") as file:
        file.seek(2)
        assert file.read(5) == b"1.csv"
    size, written = file_io.stat(f"{store.url}/rows/a/1.csv")
    assert size == 21
    objects.write("a/1.csv", b"A" * 21, objects.read("a/1.csv")[1])
    # The stores return whole seconds, but a second write within a second counts as a change.
    assert file_io.stat(f"{store.url}/rows/a/1.csv") != (size, written)
    assert file_io.stats([f"{store.url}/rows/a/2.csv", f"{store.url}/rows/none"])[1] is None
    with pytest.raises(FileNotFoundError):
        file_io.open_binary(f"{store.url}/rows/none")


def test_artifacts_are_copied(store: ObjectStore, tmp_path: Path) -> None:
    if store.url.startswith("gs://"):
        pytest.skip("TensorFlow opens gs:// itself, so nothing is copied")
    here, there = (ArtifactCopies(str(tmp_path / name), f"{store.url}/artifacts") for name in ("here", "there"))
    contents = {"a/model/1": {"x": b"x", "b/y": b"y"}, "a/nothing/1": {}, "b/value/2/value": {"": b"7"}}
    for artifact, files in contents.items():
        (tmp_path / "here" / artifact).parent.mkdir(parents=True)
        if "" not in files:
            (tmp_path / "here" / artifact).mkdir()
        for name, content in files.items():
            file = tmp_path / "here" / artifact / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
    for artifact in contents:
        assert not there.exists(f"{there.folder}/{artifact}")
        # The copy alone does not count, because other machines cannot read it.
        assert not here.exists(f"{here.folder}/{artifact}")
        here.upload(f"{here.folder}/{artifact}")
        assert there.exists(f"{there.folder}/{artifact}")
        there.download(f"{there.folder}/{artifact}")
        paths = [path for path in sorted((tmp_path / "there" / artifact).rglob("*")) if path.is_file()]
        copied = tmp_path / "there" / artifact
        files = {str(path.relative_to(copied)): path.read_bytes() for path in paths}
        assert (files or ({"": copied.read_bytes()} if copied.is_file() else {})) == contents[artifact]
        url = there.to_url(str(copied))
        assert file_io.list_files(url) == [f"{url}/{name}" for name in sorted(files)] or not files
    assert file_io.read(f"{store.url}/artifacts/a/model/1/b/y") == b"y"
    assert file_io.read(f"{store.url}/artifacts/a/model/1/none") is None
    here.remove(f"{here.folder}/a/model/1")
    here.remove(f"{here.folder}/a/nothing/1")
    assert not here.exists(f"{here.folder}/a/model/1")
    assert not there.exists(f"{there.folder}/a/nothing/1")


@pytest.mark.slow
def test_mirror_serves_from_the_bucket(store: ObjectStore, tmp_path: Path) -> None:
    url = f"{store.url}/models/line"
    push_folder = open_store(url)
    for number, slope in ((1, 2.0), (2, 3.0), (3, 4.0)):
        push_folder.add(str(line(tmp_path / "line", number, slope)), number, PROVENANCE)
        push_folder.change(lambda now, number=number: now.change_stages("promote", Stages(stable=number), "me"))
    local = tmp_path / "mirror" / "line"
    assert mirror(PushFolder(url, None), str(local)).stable == 3
    # The version to which a rollback returns is there, and no other.
    assert sorted(path.name for path in local.iterdir() if path.name.isdecimal()) == ["2", "3"]
    with serving(tmp_path / "server", f"--model_config_file={local}/rollout/models.config") as server:
        server.wait("line", 3)
        request = {"signature_name": "raw", "instances": [{"x": 2.0, "name": "you"}]}
        status, answer = server.ask("POST", "/v1/models/line/labels/stable:predict", request)
        assert (status, answer["predictions"][0]["y"]) == (200, pytest.approx(9.0, abs=1e-6))
    push_folder.change(lambda now: now.change_stages("rollback", Stages(stable=2), "me"))
    objects = open_objects(url)
    content, tag = objects.read("1/saved_model.pb")
    objects.write("1/saved_model.pb", content[:-1] + b"!", tag)
    with pytest.raises(InputError, match=r"1/saved_model\.pb was changed after the push"):
        mirror(PushFolder(url, None), str(local))
    # The local folder still serves the versions that it has.
    assert sorted(path.name for path in local.iterdir() if path.name.isdecimal()) == ["2", "3"]
    objects.write("1/saved_model.pb", content, objects.read("1/saved_model.pb")[1])
    assert mirror(PushFolder(url, None), str(local)).stable == 2
    assert 'key: "stable" value: 2 ' in (local / "rollout" / "models.config").read_text()


def test_missing_bucket_is_an_error(store: ObjectStore, tmp_path: Path) -> None:
    other = store.url.replace("rides", "none")
    with pytest.raises(InputError, match=f"{other}/models.* does not exist"):
        open_store(f"{other}/models").add(str(write_model(tmp_path / "model", 1)), 1, PROVENANCE)


@pytest.mark.parametrize("kind", object_stores.WITH_KEYS)
def test_wrong_key_is_an_error(kind: str, tmp_path: Path) -> None:
    with object_stores.serve(kind, tmp_path) as store:
        right, wrong = object_stores.KEY, object_stores.OTHER_KEY
        environment = {name: value.replace(right, wrong) for name, value in store.environment.items()}
        with object_stores.use(environment):
            objects = open_objects(f"{store.url}/models")
            attempts: list[Callable[[], object]] = [
                lambda: open_store(f"{store.url}/models").read(),
                lambda: objects.list_names(""),
                lambda: objects.write("x.json", b"x", None),
                lambda: objects.upload("x", io.BytesIO(b"x" * 100)),
            ]
            for attempt in attempts:
                with pytest.raises(InputError, match=f"{store.url}/models.* access is denied") as denied:
                    attempt()
                assert re.match("check A[A-Z_]+", denied.value.remedy)


@pytest.mark.parametrize("kind", [object_stores.SEAWEEDFS])
def test_profile_and_role_give_access(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_stores.serve(kind, tmp_path) as store:
        endpoint = store.environment["AWS_ENDPOINT_URL_S3"]
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.delenv(name)
        common = f"region = us-east-1\nendpoint_url = {endpoint}\n"
        roles = "".join(
            f"[profile {role}]\nrole_arn = {object_stores.ROLES}/{role}\nsource_profile = rider\n{common}"
            for role in ("writer", "reader", "none")
        )
        (tmp_path / "config").write_text(f"[profile rider]\n{common}{roles}")
        (tmp_path / "credentials").write_text(
            f"[rider]\naws_access_key_id = {object_stores.ACCOUNT}\naws_secret_access_key = {object_stores.KEY}\n"
        )
        files = {"AWS_CONFIG_FILE": "config", "AWS_SHARED_CREDENTIALS_FILE": "credentials"}
        environment = {name: str(tmp_path / file) for name, file in files.items()}
        model, url = str(write_model(tmp_path / "model", 20)), f"{store.url}/models/taxi"
        for number, profile in enumerate(("rider", "writer"), 1):
            with object_stores.use({**environment, "AWS_PROFILE": profile}):
                assert open_store(url).add(model, number, PROVENANCE) == (f"{url}/{number}", number)
        with object_stores.use({**environment, "AWS_PROFILE": "reader"}):
            assert version_manifest.verify(open_store(url).version(2)).version == 2
            with pytest.raises(InputError, match=r"models/taxi.* access is denied") as denied:
                open_store(url).add(model, 3, PROVENANCE)
            assert "its permissions" in denied.value.remedy
        for profile in ("none", "unknown"):
            with object_stores.use({**environment, "AWS_PROFILE": profile}), pytest.raises(InputError) as refused:
                open_store(url).read()
            assert "profile" in refused.value.remedy


class _RestartingFile(io.FileIO):
    """A file that kills a server when most of it has been read, and starts the server again.

    Args:
      path: Path of the file.
      server: The server.
    """

    def __init__(self, path: Path, server: object_stores.Server) -> None:
        super().__init__(path)
        self._server = server
        self.restarts = 0

    def read(self, size: int = -1, /) -> bytes:
        if self.tell() > 40 * MEBIBYTE and not self.restarts:
            self._server.kill()
            # The next requests are refused until the server listens.
            threading.Thread(target=self._server.start).start()
            self.restarts += 1
        return super().read(size)


@pytest.mark.parametrize("kind", [object_stores.SEAWEEDFS])
def test_upload_goes_on_when_its_server_is_started_again(kind: str, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(100 * MEBIBYTE)
    (tmp_path / "large").write_bytes(content)
    with object_stores.serve(kind, tmp_path) as store:
        objects = open_objects(store.url)
        with _RestartingFile(tmp_path / "large", store.server) as source:
            objects.upload("large", source)  # type: ignore[arg-type]
            assert source.restarts == 1
        with objects.open("large") as file:
            assert hashlib.sha256(file.read()).digest() == hashlib.sha256(content).digest()


@pytest.mark.parametrize("kind", [object_stores.SEAWEEDFS])
@pytest.mark.parametrize("disk", ["volume0", "volume1"])
def test_version_is_complete_without_a_lost_disk(kind: str, disk: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", megabytes=20)
    with object_stores.serve(kind, tmp_path) as store:
        push_folder = open_store(f"{store.url}/models/taxi")
        push_folder.add(str(model), 1, PROVENANCE)
        store.server.kill(disk)
        assert version_manifest.verify(push_folder.version(1)).version == 1


@pytest.mark.parametrize("kind", [object_stores.MOTO])
def test_server_that_does_not_answer_is_an_error(kind: str, tmp_path: Path) -> None:
    with object_stores.serve(kind, tmp_path) as store:
        url, environment = f"{store.url}/models", {**store.environment, "AWS_MAX_ATTEMPTS": "1"}
    with object_stores.use(environment), pytest.raises(MachineError, match=f"{url}/registry.json cannot be reached"):
        open_store(url).read()


@pytest.mark.parametrize("kind", [object_stores.MOTO])
def test_unusable_setting_is_not_a_missing_object(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile process]\ncredential_process = /bin/false\n")
    file = {"AWS_CONFIG_FILE": str(tmp_path / "config")}
    no_key = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    token = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "none"), "AWS_ROLE_ARN": f"{object_stores.ROLES}/writer"}
    unusable = {
        "The config profile (none) could not be found": {**file, "AWS_PROFILE": "none"},
        "Invalid endpoint: localhost:9": {"AWS_ENDPOINT_URL_S3": "localhost:9"},
        "must be one of: ('legacy', 'standard', 'adaptive')": {"AWS_RETRY_MODE": "often"},
        "No such file or directory: '": {**no_key, **token},
        "No such file or directory": {
            "AWS_CA_BUNDLE": str(tmp_path / "none"),
            "AWS_ENDPOINT_URL_S3": "https://localhost",
        },
    }
    with object_stores.serve(kind, tmp_path) as store:
        url = f"{store.url}/models"
        open_store(url).add(str(write_model(tmp_path / "model", 1)), 1, PROVENANCE)
        for text, variables in unusable.items():
            with object_stores.use(variables):
                for attempt in (open_store(url).read, open_store(url).versions):
                    with pytest.raises(InputError, match=f"{url}.* expected a URL and settings.*{re.escape(text)}"):
                        attempt()
        with pytest.raises(InputError, match="Parameter validation failed: Invalid bucket name"):
            open_store("s3://ri des/models").read()
        with object_stores.use({**file, **no_key, "AWS_PROFILE": "process"}), pytest.raises(MachineError) as failed:
            open_store(url).read()
        assert failed.value.remedy.startswith("check AWS_ACCESS_KEY_ID")


@pytest.mark.slow
def test_files_that_tensorflow_opens_are_read(tmp_path: Path) -> None:
    bucket = fake_gcs.Bucket()
    for name in ("run/a.json", "run/b/c.json"):
        bucket.store(name, name.encode())
    program = """
from components.data import file_io

url = "gs://rides/run"
print([file_io.read(url + "/a.json"), file_io.read(url + "/none"), file_io.list_files(url), file_io.list_files("gs://no/no")])
"""
    with fake_gcs.serve(bucket, tmp_path) as environment:
        ended = call([sys.executable, "-c", program], environment)
    assert ended.exit_code == 0, ended.err
    files = ["gs://rides/run/a.json", "gs://rides/run/b/c.json"]
    assert ended.out.splitlines()[-1] == repr([b"run/a.json", None, files, []])
