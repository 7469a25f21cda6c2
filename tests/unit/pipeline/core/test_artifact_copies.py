"""Tests for artifacts in an object store, whose copies the nodes work with."""

from __future__ import annotations

from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as proto

from pipeline.core.artifact_copies import ArtifactCopies
from pipeline.core.metadata.connection import connect
from pipeline.core.metadata.store import Store

URL = "s3://rides/out/taxi"


def test_store_contains_urls_and_callers_see_paths(tmp_path: Path) -> None:
    location, folder = tmp_path / "metadata.db", tmp_path / "artifacts"
    copies = ArtifactCopies(str(folder), URL)
    relocated = connect(location, copies=copies)
    type_id = relocated.put_artifact_type(proto.ArtifactType(name="Model"))
    artifact = proto.Artifact(type_id=type_id, uri=f"{folder}/Trainer/model/3")
    artifact.custom_properties["base"].string_value = f"{folder}/Trainer/model/1"
    artifact.custom_properties["other"].string_value = f"{folder}s/Trainer"
    relocated.put_artifacts([artifact])
    # The message of the caller is unchanged.
    assert artifact.uri == f"{folder}/Trainer/model/3"

    [stored] = connect(location).get_artifacts()
    properties = {name: value.string_value for name, value in stored.custom_properties.items()}
    assert stored.uri == f"{URL}/Trainer/model/3"
    assert properties == {"base": f"{URL}/Trainer/model/1", "other": f"{folder}s/Trainer"}
    [seen] = relocated.get_artifacts_by_uri(f"{folder}/Trainer/model/3")
    assert (seen.uri, seen.custom_properties["base"].string_value) == (artifact.uri, f"{folder}/Trainer/model/1")

    # A reader sees the path of a copy if there is one.
    assert [artifact.uri for artifact in Store(location).newest_artifacts()] == [stored.uri]
    (folder / "Trainer" / "model" / "3").mkdir(parents=True)
    assert [artifact.uri for artifact in Store(location).newest_artifacts()] == [seen.uri]
    elsewhere = str(tmp_path / "elsewhere")
    assert [artifact.uri for artifact in Store(location, elsewhere).newest_artifacts()] == [stored.uri]
