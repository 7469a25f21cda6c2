"""Texts on their way to a database server and back."""

from __future__ import annotations

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto
from ml_metadata.proto import metadata_store_service_pb2 as service

from pipeline.metadata.messages import change_all
from pipeline.metadata.texts import MYSQL, POSTGRESQL, Texts

ALL = "".join(map(chr, range(1, 0x180))) + "東京 🚕 \\"


@pytest.mark.parametrize("texts", [POSTGRESQL, MYSQL])
def test_there_and_back(texts: Texts):
    for text in (ALL, "", "plain", *ALL):
        assert texts.reveal(texts.hide(text)) == text
    assert "\\" not in POSTGRESQL.hide(ALL)
    assert MYSQL.hide("ü") == "Ã¼"


def test_what_somebody_wrote_rightly_is_read_rightly():
    assert MYSQL.reveal("Grüße, 東京") == "Grüße, 東京"


def test_every_text_of_a_message_is_changed():
    asked = service.PutExecutionRequest()
    asked.execution.name = "a\\b"
    asked.execution.custom_properties["k\\"].string_value = "c\\d"
    asked.execution.properties["n"].int_value = 3
    asked.artifact_event_pairs.add().artifact.uri = "\\\\"
    asked.contexts.add().custom_properties["s"].struct_value.fields["f\\"].string_value = "\\"
    before = asked.SerializeToString(deterministic=True)
    change_all(asked, POSTGRESQL.hide)
    assert b"\\" not in asked.SerializeToString()
    change_all(asked, POSTGRESQL.reveal)
    assert asked.SerializeToString(deterministic=True) == before
    listed = service.GetContextsByIDRequest()
    assert listed == listed.FromString(b"")
    typed = proto.ArtifactType(name="a\\", properties={"p\\": proto.INT, "q": proto.STRING})
    change_all(typed, str.upper)
    assert typed == proto.ArtifactType(name="A\\", properties={"P\\": proto.INT, "Q": proto.STRING})
