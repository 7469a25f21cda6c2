"""A fake of BigQuery's HTTP API, as far as load jobs of Parquet files need it; it reads the files with pyarrow."""

from __future__ import annotations

import contextlib
import io
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.support.fakes import google_credentials
from tests.support.fakes.fake_gcs import Bucket
from tests.support.fakes.fake_service import JsonHandler, serving


@dataclass
class Table:
    """A table that a job has written.

    Attributes:
      rows: its content.
      properties: `destinationTableProperties` of the job.
    """

    rows: pa.Table
    properties: dict[str, Any]


@dataclass
class Warehouse:
    """The content of BigQuery.

    Attributes:
      bucket: the bucket that jobs read from, under any name.
      datasets: name → its location.
      tables: `dataset.table` → table.
      jobs: all jobs, as they were sent.
      refuses: the error of the next job: reason and message.
    """

    bucket: Bucket = field(default_factory=Bucket)
    datasets: dict[str, str] = field(default_factory=lambda: {"rides": "EU"})
    tables: dict[str, Table] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    refuses: tuple[str, str] | None = None

    def load(self, job: dict[str, Any], uploaded: bytes | None) -> dict[str, Any]:
        """Run a load job; return it with its state."""
        self.jobs.append(job)
        load = job["configuration"]["load"]
        name = f"{load['destinationTable']['datasetId']}.{load['destinationTable']['tableId']}"
        assert (load["sourceFormat"], load["writeDisposition"]) == ("PARQUET", "WRITE_EMPTY")
        error, self.refuses = self.refuses, None
        if name in self.tables:
            error = ("duplicate", f"Already Exists: Table {name}")
        elif error is None:
            objects = [uri.removeprefix("gs://").partition("/")[2] for uri in load.get("sourceUris", ())]
            files = [self.bucket.objects[name] for name in objects] if uploaded is None else [uploaded]
            rows = pa.concat_tables([parquet.read_table(io.BytesIO(content)) for content in files])
            self.tables[name] = Table(rows, load["destinationTableProperties"])
        failed = {"errorResult": {"reason": error[0], "message": error[1]}} if error else {}
        return {**job, "status": {"state": "DONE", **failed}}


@contextlib.contextmanager
def serve(warehouse: Warehouse, folder: Path) -> Iterator[Mapping[str, str]]:
    """Serve a warehouse; yield the environment variables with which Google's client finds it.

    Args:
      warehouse: Content to serve.
      folder: Folder for the credentials.
    """
    with serving(_handler(warehouse)) as port:
        address = f"http://127.0.0.1:{port}"
        credentials = google_credentials.write(folder, f"{address}/token")
        yield {"BIGQUERY_EMULATOR_HOST": address, "GOOGLE_APPLICATION_CREDENTIALS": str(credentials)}


def _handler(warehouse: Warehouse) -> type[JsonHandler]:
    ended: dict[str, dict[str, Any]] = {}
    uploads: dict[str, dict[str, Any]] = {}

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            match urllib.parse.urlsplit(self.path).path.strip("/").split("/"):
                case [*_, "jobs", name]:
                    self.respond(ended[name])
                case [*_, project, "datasets", dataset, "tables", table] if f"{dataset}.{table}" in warehouse.tables:
                    reference = {"projectId": project, "datasetId": dataset, "tableId": table}
                    self.respond({"tableReference": reference})
                case [*_, project, "datasets", dataset] if dataset in warehouse.datasets:
                    reference = {"projectId": project, "datasetId": dataset}
                    self.respond({"datasetReference": reference, "location": warehouse.datasets[dataset]})
                case _:
                    self.respond({"error": {"code": 404, "message": f"Not found: {self.path}"}}, 404)

        def do_POST(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            body = self.body()
            if url.path == "/token":
                self.respond(google_credentials.TOKEN)
            elif "/upload/" in url.path:
                job = json.loads(body)
                name = job["jobReference"]["jobId"]
                uploads[name] = job
                self.answer(200, b"", {"Location": f"http://{self.headers['Host']}/session/{name}"})
            else:
                self._end(json.loads(body), None)

        def do_PUT(self) -> None:
            self._end(uploads.pop(self.path.rpartition("/")[2]), self.body())

        def _end(self, job: dict[str, Any], uploaded: bytes | None) -> None:
            result = warehouse.load(job, uploaded)
            ended[job["jobReference"]["jobId"]] = result
            self.respond(result)

    return Handler
