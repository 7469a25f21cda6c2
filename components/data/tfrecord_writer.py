"""Write serialized records to a gzip-compressed TFRecord file.

A record is framed as in TensorFlow (tensorflow/core/lib/io/record_writer): the length, a checksum of the length, the
record, a checksum of the record.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google_crc32c import value as crc32c
from isal import isal_zlib

from components.data import example_encoder, file_io
from components.data.tfrecord import FOOT, HEAD, frame_head, mask

_CHECKSUM_PLACEHOLDER = bytes(FOOT)
"""The bytes that follow a record until its checksum is computed."""
_GZIP_LEVEL = 1


class TfrecordWriter:
    """Writes records to a file. The caller renames the file when it is complete.

    Args:
      path: Local or remote path.
    """

    def __init__(self, path: str) -> None:
        self.bytes = 0
        self._file = file_io.create(path)
        self._packer = isal_zlib.compressobj(_GZIP_LEVEL, wbits=31)

    def write(self, records: pa.Array) -> None:
        """Append framed records, see `frame_examples` and `frame_records`; binary, shape [records]."""
        data = _fill_checksums(records)
        self._file.write(self._packer.compress(data))
        self.bytes += len(data)

    def close(self) -> None:
        """Write the remaining compressed bytes and close the file."""
        with self._file:
            self._file.write(self._packer.flush())


def frame_examples(batch: pa.RecordBatch) -> pa.Array:
    """Encode the rows of a batch as framed tf.Examples; see `example_encoder.encode`."""
    return example_encoder.encode(batch, frame_head, _CHECKSUM_PLACEHOLDER)


def frame_records(records: pa.Array) -> pa.Array:
    """Put the heads before serialized records (binary), and placeholders for their checksums after them."""
    head = example_encoder.by_length(example_encoder.lengths(records), frame_head)
    return example_encoder.join([head, records, pa.scalar(_CHECKSUM_PLACEHOLDER, pa.binary())], len(records))


def _fill_checksums(records: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of framed records, with their checksums filled in; shape [bytes]."""
    ends = example_encoder.offsets_of(records).astype(np.int64)
    data = records.buffers()[2].to_pybytes()
    starts, stops = (ends[:-1] + HEAD).tolist(), (ends[1:] - FOOT).tolist()
    sums = [crc32c(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    checks = np.asarray(mask(np.array(sums, "<u4"))).view(np.uint8).reshape(-1, FOOT)
    filled: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8).copy()
    filled[(ends[1:] - FOOT)[:, None] + np.arange(FOOT)] = checks
    return filled[ends[0] : ends[-1]]
