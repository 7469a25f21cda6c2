"""Parsers of unchecked input: every one accepts any bytes, and raises only the documented error."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
"""Target → folder of inputs: seeds, and what was once found to be wrong."""


def config(content: bytes) -> None:
    """Load a config file; expect a Config, or an InputError with all problems."""
    from components.base.errors import InputError
    from pipeline.authoring.config import load

    with contextlib.suppress(InputError):
        load(str(_file("fuzz.yaml", content)))


def label(content: bytes) -> None:
    """Parse a label's expression; expect a ValueError, or at least one column."""
    from components.features import expression

    try:
        parsed = expression.parse(content.decode(errors="surrogateescape"))
    except ValueError:
        return
    assert parsed.columns


def csv(content: bytes) -> None:
    """Read delimited text, whose first byte chooses the format; expect every row in a block or among the bad rows."""
    from components.base.errors import InputError
    from components.ingest.blocks import RowLog
    from components.ingest.config import CsvConfig
    from components.ingest.csv_header import read_header
    from components.ingest.csv_reader import CsvReader

    choice, text = (content[0], content[1:]) if content else (0, b"")
    settings = CsvConfig(
        delimiter=",;\t|"[choice % 4],
        encoding=("utf-8", "cp1252", "utf-16", "latin-1")[choice // 4 % 4],
        header=bool(choice & 16),
        skip_initial_space=bool(choice & 32),
    )
    path = str(_file("fuzz.csv", text))
    row_log = RowLog(None)
    try:
        names = list(read_header(path, settings).names)
        reader = CsvReader(settings, path, names)
        rows = sum(
            block.columns.num_rows
            for file_range in reader.ranges(path, None)
            for block in reader.read(file_range, row_log)
        )
    except InputError:
        return
    counts = row_log.close()
    assert counts.rows == rows + counts.bad


def tfrecord(content: bytes) -> None:
    """Read a file of tf.Examples; expect every record in a block or among the bad rows."""
    from components.base.errors import InputError
    from components.ingest.blocks import RowLog
    from components.ingest.config import TfrecordConfig
    from components.ingest.example_reader import ExampleReader

    path = str(_file("fuzz.tfrecord", content))
    reader, row_log = ExampleReader(TfrecordConfig()), RowLog(None)
    try:
        rows = sum(block.columns.num_rows for block in reader.read(reader.first_range(path, None), row_log))
    except InputError:
        return
    counts = row_log.close()
    assert counts.rows == rows + counts.bad


def image(content: bytes) -> None:
    """Check an image; expect it to be accepted, or rejected with a reason."""
    from components.ingest import image_check

    image_check.examine(content, max_megapixels=1)


def manifest(content: bytes) -> None:
    """Read a version's manifest and the stages of a push folder; expect them to survive a write and a read."""
    from components.base.errors import InputError
    from components.pusher import serving_state
    from components.results import version_manifest

    for read in (
        lambda: version_manifest.read(_file(version_manifest.NAME, content).parent),
        lambda: serving_state.parse(serving_state.to_json(serving_state.parse(content, "a")).encode(), "b"),
    ):
        with contextlib.suppress(InputError):
            read()


def request(content: bytes) -> None:
    """Parse a REST request to a model with columns of every dtype; expect arrays of its signature, or an error."""
    from components.serving.server import json_codec
    from components.serving.server.errors import RequestError

    signature = _signature()
    try:
        arrays = json_codec.inputs(json_codec.parse(content), signature)
        signature.check(arrays)
    except RequestError:
        return
    assert arrays.keys() == signature.inputs.keys()


def inference(content: bytes) -> None:
    """Parse a request of the Open Inference Protocol, whose first byte is the length of a part that is not JSON."""
    from components.serving.server import inference_rest
    from components.serving.server.errors import RequestError
    from components.serving.server.inference_tensors import to_arrays

    body, tail = content[1:], content[0] if content else 0
    signature = _signature()
    try:
        request = inference_rest.parse(body, str(max(0, len(body) - tail)) if tail else None)
        arrays = to_arrays(request.tensors, signature)
        signature.check(arrays)
    except RequestError:
        return
    assert arrays.keys() == signature.inputs.keys()


def rpc(content: bytes) -> None:
    """Send a gRPC message, whose first byte chooses the method; expect an answer, or an error with a status."""
    from google.protobuf.message import DecodeError

    from components.serving.server.errors import RequestError

    method, message_class = _methods()[content[0] % len(_methods()) if content else 0]
    with contextlib.suppress(DecodeError, RequestError):
        message = message_class.FromString(content[1:])
        asyncio.run(getattr(_service(), method)(message)).SerializeToString()


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (config, label, csv, tfrecord, image, manifest, request, inference, rpc)
}


@functools.cache
def _folder() -> Path:
    # Use a file system in memory if there is one.
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108


def _file(name: str, content: bytes) -> Path:
    file = _folder() / name
    file.write_bytes(content)
    return file


def remove_files() -> None:
    """Remove the files that the targets have written."""
    shutil.rmtree(_folder())
    for cached in (_folder, _service):
        cached.cache_clear()


@functools.cache
def _signature() -> Any:
    import tensorflow as tf

    from components.serving.server.saved_model import Signature, TensorSpec

    inputs = {
        "number": TensorSpec(tf.float32, (-1, 1)),
        "count": TensorSpec(tf.int64, (-1,)),
        "text": TensorSpec(tf.string, (-1, 1)),
        "flag": TensorSpec(tf.bool, (-1, 2)),
    }
    return Signature("serving_default", inputs, {}, None)


@functools.cache
def _methods() -> list[tuple[str, Any]]:
    """Return the gRPC methods with the class of their requests; append new methods, or the corpus changes."""
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        get_model_status_pb2,
        predict_pb2,
    )

    return [
        ("Predict", predict_pb2.PredictRequest),
        ("GetModelMetadata", get_model_metadata_pb2.GetModelMetadataRequest),
        ("GetModelStatus", get_model_status_pb2.GetModelStatusRequest),
    ]


@functools.cache
def _service() -> Any:
    """Return the service with the model `old`."""
    from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

    from components.serving.server.metrics import Metrics
    from components.serving.server.model_manager import ModelManager, load_verified
    from components.serving.server.service import Service
    from tests.support.data.old_models import classifier

    base = _folder() / "models" / "old"
    classifier(base, 1)
    config = ModelConfig(name="old", base_path=str(base), version_labels={"stable": 1})
    manager = ModelManager(lambda: {"old": config}, functools.partial(load_verified, None, True, 1))
    asyncio.run(manager.update())
    return Service(
        manager,
        Metrics(manager.all, lambda: 0),
        None,
        None,
        workers=1,
        max_in_flight=1,
        read_seconds=1,
    )
