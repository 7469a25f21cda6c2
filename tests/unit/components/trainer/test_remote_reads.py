"""The training reads several parts of remote files at the same time, so that their latency is hidden."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from components.data.parallel_reads import READERS
from components.data.tfrecord_writer import TfrecordWriter, frame_examples
from components.features import feature_names
from tests.support.fakes.fake_gcs import Bucket, serve
from tests.support.programs import remote_batches
from tests.support.runs.command import ROOT, SECONDS
from tests.support.servers.forked_command import ForkedCommand

LATENCY = 0.5
"""Maximum latency of a read in seconds. A read ends earlier once enough reads have been in flight at the same time."""
ROWS = 64


@dataclass
class SlowBucket(Bucket):
    """A bucket whose reads have a latency.

    Attributes:
      most: Largest number of reads that were in flight at the same time.
    """

    most: int = 0
    _in_flight: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def read(self, name: str) -> tuple[bytes | None, int]:
        with self._changed:
            self._in_flight += 1
            self.most = max(self.most, self._in_flight)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= READERS, LATENCY)
            self._in_flight -= 1
        return super().read(name)


@pytest.mark.extended
@pytest.mark.parametrize(("stored", "cache"), [("parquet", "none"), ("parquet", "memory"), ("tfrecord", "none")])
def test_remote_files_are_read_in_parallel(tmp_path: Path, stored: str, cache: str) -> None:
    """Parquet: the row groups of one file. TFRecords: several files."""
    bucket = SlowBucket()
    numbers = pa.array([[float(row)] for row in range(ROWS)], pa.large_list(pa.float32()))
    batch = pa.RecordBatch.from_arrays([numbers, numbers], ["x", feature_names.LABEL])
    if stored == "parquet":
        parquet.write_table(pa.Table.from_batches([batch]), tmp_path / "0", row_group_size=4)
        bucket.objects["0"] = (tmp_path / "0").read_bytes()
    else:
        for number in range(READERS):
            writer = TfrecordWriter(str(tmp_path / str(number)))
            writer.write(frame_examples(batch.slice(number * ROWS // READERS, ROWS // READERS)))
            writer.close()
            bucket.objects[str(number)] = (tmp_path / str(number)).read_bytes()
    arguments = [str(ROWS), cache, *(f"gs://bucket/{name}" for name in sorted(bucket.objects))]
    with serve(bucket, tmp_path) as environment:
        code, out, err = ForkedCommand(remote_batches.main, arguments, ROOT, {**os.environ, **environment}).wait(
            SECONDS
        )
    assert code == 0, err
    labels = json.loads(out)
    assert sorted(labels) == list(range(ROWS))
    assert labels != sorted(labels)
    assert bucket.most >= READERS
