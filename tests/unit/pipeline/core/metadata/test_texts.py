"""Tests for the encoding of texts on a database server."""

from __future__ import annotations

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from ml_metadata.proto import metadata_store_service_pb2 as service

from pipeline.core.metadata.connection import change_all
from pipeline.core.metadata.sql import MYSQL, POSTGRESQL, Texts

ALL = "".join(map(chr, range(1, 0x180))) + "東京 🚕 \\"


@pytest.mark.parametrize("texts", [POSTGRESQL, MYSQL])
def test_encoded_texts_are_decoded_to_the_same_texts(texts: Texts):
    for text in (ALL, "", "plain", *ALL):
        assert texts.decode(texts.encode(text)) == text
    assert "\\" not in POSTGRESQL.encode(ALL)
    assert MYSQL.encode("ü") == "Ã¼"


def test_texts_of_other_clients_are_not_changed():
    assert MYSQL.decode("Grüße, 東京") == "Grüße, 東京"


def test_all_texts_of_a_message_are_changed():
    request = service.PutExecutionRequest()
    request.execution.name = "a\\b"
    request.execution.custom_properties["k\\"].string_value = "c\\d"
    request.execution.properties["n"].int_value = 3
    request.artifact_event_pairs.add().artifact.uri = "\\\\"
    request.contexts.add().custom_properties["s"].struct_value.fields["f\\"].string_value = "\\"
    before = request.SerializeToString(deterministic=True)
    change_all(request, POSTGRESQL.encode)
    assert b"\\" not in request.SerializeToString()
    change_all(request, POSTGRESQL.decode)
    assert request.SerializeToString(deterministic=True) == before
    request_without_texts = service.GetContextsByIDRequest()
    assert request_without_texts == request_without_texts.FromString(b"")
    artifact_type = proto.ArtifactType(name="a\\", properties={"p\\": proto.INT, "q": proto.STRING})
    change_all(artifact_type, str.upper)
    assert artifact_type == proto.ArtifactType(name="A\\", properties={"P\\": proto.INT, "Q": proto.STRING})
