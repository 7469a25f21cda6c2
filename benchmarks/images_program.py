"""Run a side of the benchmark of the images that training reads, and print its figures as a line of JSON.

python -m benchmarks.images_program write FOLDER
python -m benchmarks.images_program FORMAT CACHE FOLDER ROUNDS

- `write`: write the generated images in FOLDER as transformed examples, in the files that Transform writes.
- FORMAT CACHE: take batches of the Trainer's input and of a pipeline of `tf.data` alone in turns. The latter reads the
  same files, decodes, resizes, shuffles and batches, and keeps examples or pixels with `cache`.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from benchmarks.images import BATCH
from components.data.examples import ParquetWriter
from components.data.tfrecord_writer import TfrecordWriter, frame_examples
from components.features import feature_names, images
from components.features.image_ops import Image
from components.trainer.augmentation import augment
from components.trainer.config import AugmentationConfig, TrainingConfig
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import InputPipeline, PixelCache, find

_SIZE = 224
_OPERATIONS = {"image": Image(height=_SIZE, width=_SIZE, channels=3)}
_SPEC = {
    "image": tf.io.FixedLenFeature([], tf.string),
    feature_names.LABEL: tf.io.FixedLenFeature([], tf.float32),
}
_AUGMENTATION = AugmentationConfig(flip=True, crop=0.2, colour=0.2)
_FILES = 4
_BUFFER = 256
"""Images in the shuffle buffers."""
_WARM_UP, _TAKEN = 4, 16
"""Batches before a turn, and in a turn."""


def write(folder: Path) -> None:
    """Write the images as transformed examples, Parquet and TFRecord."""
    files = sorted(folder.glob("classes/*/*.jpg"), key=lambda path: int(path.stem))
    for number in range(_FILES):
        part = files[number::_FILES]
        labels = pa.array([[float(file.parent.name)] for file in part], pa.large_list(pa.float32()))
        encoded = pa.array([[file.read_bytes()] for file in part], pa.large_list(pa.large_binary()))
        batch = pa.RecordBatch.from_arrays([encoded, labels], ["image", feature_names.LABEL])
        parquet = ParquetWriter(str(folder / f"parquet-{number}"), batch.schema)
        parquet.write(batch)
        parquet.close()
        records = TfrecordWriter(str(folder / f"tfrecord-{number}"))
        records.write(frame_examples(batch))
        records.close()


def compare(form: str, cache: str, folder: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Take batches of both pipelines in turns; see `images.Turns` for the result."""
    files = find([str(folder / f"{form}-?")])
    figures: dict[str, dict[str, list[float]]] = {}
    readers: dict[tuple[str, str], Callable[[], Iterator[Any]]] = {}
    for kind, is_augmented in (("plain", False), ("augmented", True)):
        for name, create in (("ours", _ours), ("floor", _floor)):
            readers[kind, name] = create(form, files, cache, is_augmented)
            # The caches fill before the first turn.
            _take(readers[kind, name](), len(list(folder.glob("classes/*/*"))) // BATCH)
    for _ in range(rounds):
        for (kind, name), reader in readers.items():
            batches = reader()
            _take(batches, _WARM_UP)
            start, cpu = time.perf_counter(), time.process_time()
            _take(batches, _TAKEN)
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
            del batches
            values = figures.setdefault(kind, {})
            values.setdefault(name, []).append(BATCH * _TAKEN / wall)
            values.setdefault(f"{name} cpu", []).append(cpu / (BATCH * _TAKEN))
    return figures


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(batches)


def _ours(_form: str, files: list[str], cache: str, is_augmented: bool) -> Callable[[], Iterator[Any]]:
    config = TrainingConfig.model_validate({"cache": cache, "batch_size": BATCH, "shuffle_buffer": _BUFFER})
    decode, pack, unpack = (
        functools.partial(function, _OPERATIONS) for function in (images.decode, images.pack, images.unpack)
    )
    pixels = PixelCache(pack, unpack, images.row_bytes(_OPERATIONS)) if cache == "pixels" else None
    changes = functools.partial(augment, _OPERATIONS, _AUGMENTATION) if is_augmented else None
    pipeline = InputPipeline(files, _SPEC, config, BATCH, None, decode, changes, pixels)
    dataset = pipeline.dataset(InputShard())
    return lambda: iter(dataset)


def _floor(form: str, files: list[str], cache: str, is_augmented: bool) -> Callable[[], Iterator[Any]]:
    rows = (_read_parquet if form == "parquet" else _read_tfrecord)(files)
    pixels = functools.partial(_decode, tf.uint8 if cache == "pixels" else tf.float32)
    if cache == "memory":
        rows = rows.cache()
    if cache == "pixels":
        rows = rows.map(pixels, tf.data.AUTOTUNE).cache()
    rows = rows.repeat().shuffle(_BUFFER)
    if cache != "pixels":
        rows = rows.map(pixels, tf.data.AUTOTUNE)
    batches = rows.batch(BATCH, drop_remainder=True).map(_scale, tf.data.AUTOTUNE)
    if is_augmented:
        batches = batches.map(_augment, tf.data.AUTOTUNE)
    dataset = batches.prefetch(tf.data.AUTOTUNE)
    return lambda: iter(dataset)


def _read_parquet(files: list[str]) -> tf.data.Dataset:
    """Return the rows of Parquet files, which `tf.data` cannot read, from pyarrow."""
    from pyarrow import parquet

    def read() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        for path in files:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH):
                    encoded, label = (column.flatten() for column in batch.columns)
                    yield np.array(encoded.to_pylist(), object), label.to_numpy()

    spec = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float32))
    return tf.data.Dataset.from_generator(read, output_signature=spec).unbatch()


def _read_tfrecord(files: list[str]) -> tf.data.Dataset:
    records = tf.data.TFRecordDataset(files, "GZIP", num_parallel_reads=_FILES)

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        columns = tf.io.parse_single_example(record, _SPEC)
        return columns["image"], columns[feature_names.LABEL]

    return records.map(parse, tf.data.AUTOTUNE)


def _decode(dtype: tf.DType, data: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_image(data, channels=3, expand_animations=False)
    pixels = tf.ensure_shape(tf.image.resize(image, [_SIZE, _SIZE], antialias=True), [_SIZE, _SIZE, 3])
    return tf.cast(tf.round(pixels) if dtype.is_integer else pixels, dtype), label


def _scale(pixels: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(pixels, tf.float32) / 255.0, label


def _augment(pixels: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cut a part of each image, mirror and resize it, and change its colours."""
    start, cut = tf.random.uniform([BATCH, 2]), 0.2 * tf.random.uniform([BATCH, 1])
    top_left, bottom_right = start * cut, start * cut + 1 - cut
    boxes = tf.concat([top_left, bottom_right], axis=1)
    boxes = tf.where(tf.random.uniform([BATCH, 1]) < 0.5, boxes, tf.gather(boxes, [0, 3, 2, 1], axis=1))
    pixels = tf.image.crop_and_resize(pixels, boxes, tf.range(BATCH), [_SIZE, _SIZE])
    saturation, contrast, brightness = (tf.random.uniform([BATCH, 1, 1, 1], -0.2, 0.2) for _ in range(3))
    grey = tf.image.rgb_to_grayscale(pixels)
    pixels = grey + (1 + saturation) * (pixels - grey)
    mean = tf.reduce_mean(pixels, axis=[1, 2], keepdims=True)
    return tf.clip_by_value(mean + (1 + contrast) * (pixels - mean) + brightness, 0.0, 1.0), label


def main(form: str, *arguments: str) -> None:
    """Write the examples, or measure and print the figures."""
    if form == "write":
        write(Path(arguments[0]))
        return
    cache, folder, rounds = arguments
    print(json.dumps(compare(form, cache, Path(folder), int(rounds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
