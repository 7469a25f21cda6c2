"""Prints the sources of a program of TensorFlow Serving, and writes the messages of TensorFlow that they use.

    python sources.py CHECKOUT PROGRAM DESCRIPTORS

CHECKOUT is a checkout of TensorFlow Serving and PROGRAM a source in it. The source of a header is the file of the same
name beside it or in the folder oss, except where a header of include/ replaces it. DESCRIPTORS, a FileDescriptorSet for
protoc, stands for the .proto files that TensorFlow's wheel lacks.
"""

import importlib
import re
import sys
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

REPLACED = Path(__file__).parent / "include"
NAMES = re.compile(r'^(?:#include|import) "((?:tensorflow|tensorflow_serving)/[^"]+)"', re.MULTILINE)


def find_sources(checkout: Path, program: str) -> tuple[set[str], set[str]]:
    """Return the files of `checkout` that `program` needs, and the .proto files of TensorFlow that these import."""
    sources: set[str] = set()
    imported: set[str] = set()
    waiting = [program]
    while waiting:
        name = re.sub(r"(\.grpc)?\.pb\.h$", ".proto", waiting.pop())
        if name in sources or (REPLACED / name).exists():
            continue
        if (checkout / name).exists():
            sources.add(name)
            waiting += NAMES.findall((checkout / name).read_text())
            path = Path(name)
            if path.suffix == ".h":
                waiting += [str(folder / f"{path.stem}.cc") for folder in (path.parent, path.parent / "oss")]
        elif name.endswith(".proto"):
            imported.add(name)
    return sources, imported


def describe(imported: set[str]) -> FileDescriptorSet:
    """Return the descriptors of TensorFlow's messages, each after those that it imports."""
    files: dict[str, FileDescriptor] = {}

    def add(descriptor: FileDescriptor) -> None:
        for dependency in descriptor.dependencies:
            add(dependency)
        files.setdefault(descriptor.name, descriptor)

    for name in sorted(imported):
        try:
            module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ModuleNotFoundError:
            continue  # Headers name it, but no source of this program does.
        add(module.DESCRIPTOR)
    descriptors = FileDescriptorSet()
    for descriptor in files.values():
        descriptor.CopyToProto(descriptors.file.add())
    return descriptors


if __name__ == "__main__":
    checkout, program, descriptors = sys.argv[1:]
    sources, imported = find_sources(Path(checkout), program)
    Path(descriptors).write_bytes(describe(imported).SerializeToString())
    print(*sorted(name for name in sources if not name.endswith(".h")), sep="\n")
