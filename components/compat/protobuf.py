"""Messages of protocol buffers that are declared in Python, for protocols without a Python package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_REPEATED = "repeated "


def create_messages(
    package: str, declarations: Mapping[str, Mapping[str, str]], imports: Sequence[Any] = ()
) -> dict[str, Any]:
    """Create message classes without generated code, which would fit one of the protobuf releases of both lines only.

    The classes are in a pool of their own, so that a client library with the same messages can be imported as well.
    Checked with protobuf 3.20 and 6.

    Args:
      package: Name of the package.
      declarations: Message name → field name → type. The fields are numbered from 1, in their order. A type is a
        scalar type such as int64, or a message: its name in this package, or its full name with a leading dot. The word
        `repeated` may precede the type.
      imports: Descriptors of the files that contain the other messages.

    Returns:
      Message name → class.
    """
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for imported in imports:
        pool.AddSerializedFile(imported.serialized_pb)
        file.dependency.append(imported.name)
    for message_name, fields in declarations.items():
        message = file.message_type.add(name=message_name)
        for number, (name, declared) in enumerate(fields.items(), start=1):
            kind = declared.removeprefix(_REPEATED)
            scalar = getattr(_FIELD, f"TYPE_{kind.upper()}", None)
            message.field.add(
                name=name,
                number=number,
                label=_FIELD.LABEL_OPTIONAL if kind == declared else _FIELD.LABEL_REPEATED,
                type=_FIELD.TYPE_MESSAGE if scalar is None else scalar,
                type_name=None if scalar is not None else kind if kind.startswith(".") else f".{package}.{kind}",
            )
    pool.AddSerializedFile(file.SerializeToString())
    return {name: _create_class(pool, pool.FindMessageTypeByName(f"{package}.{name}")) for name in declarations}


def _create_class(pool: Any, descriptor: Any) -> Any:
    # protobuf 3.20 lacks GetMessageClass, and protobuf 6 lacks MessageFactory.
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)
