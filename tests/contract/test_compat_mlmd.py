"""The private parts of ML Metadata that components/compat/mlmd.py relies on are as they were when it was written."""

from __future__ import annotations

import inspect
from pathlib import Path

import ml_metadata as mlmd
import pytest
from google.protobuf.message import Message
from ml_metadata.proto import metadata_store_pb2 as proto

from components.compat.mlmd import InterceptedStore

pytestmark = pytest.mark.both_lines

RENEW = "ML Metadata has changed: adapt components/compat/mlmd.py"


def sqlite(file: Path) -> proto.ConnectionConfig:
    return proto.ConnectionConfig(sqlite=proto.SqliteMetadataSourceConfig(filename_uri=str(file), connection_mode=3))


def test_every_call_passes_through_one_method(tmp_path: Path):
    method = getattr(mlmd.MetadataStore, "_call_method", None)
    assert method is not None, RENEW
    assert list(inspect.signature(method).parameters) == ["self", "method_name", "request", "response"], RENEW
    calls: list[str] = []

    class Recording(InterceptedStore):
        def call(self, method_name: str, request: Message, response: Message) -> None:
            calls.append(method_name)
            super().call(method_name, request, response)

    store = Recording(sqlite(tmp_path / "metadata.db"))
    number = store.put_artifact_type(proto.ArtifactType(name="Model"))
    assert [kind.id for kind in store.get_artifact_types()] == [number]
    assert calls == ["PutArtifactType", "GetArtifactTypes"], RENEW


def test_store_takes_the_connection_of_another(tmp_path: Path):
    assert not any("__slots__" in vars(base) for base in mlmd.MetadataStore.__mro__[:-1]), RENEW
    first, second = (InterceptedStore(sqlite(tmp_path / name)) for name in ("first.db", "second.db"))
    second.put_artifact_type(proto.ArtifactType(name="Model"))
    assert first.get_artifact_types() == []
    first.take_connection(second)
    assert [kind.name for kind in first.get_artifact_types()] == ["Model"], RENEW
