"""Write predictions to a new table in BigQuery.

A single job loads all Parquet files. BigQuery commits a job as a whole, so the table never contains a part of the rows.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyarrow import parquet

from components.base import google_cloud
from components.base.errors import InputError
from components.base.files import is_remote

_NAME = re.compile(r"(?P<project>(?:[\w.-]+:)?[a-z][\w-]*)[.:](?P<dataset>\w+)\.(?P<table>[^.:/$@`]+)")


@dataclasses.dataclass(frozen=True)
class TableName:
    """The full name of a table, `project.dataset.table`."""

    project: str
    dataset: str
    table: str

    def __str__(self) -> str:
        return f"{self.project}.{self.dataset}.{self.table}"


def parse(name: str) -> TableName:
    """Parse a name of the form `project.dataset.table` or `project:dataset.table`.

    Raises:
      InputError: If the name does not have one of these forms.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"--into: expected a table as PROJECT.DATASET.TABLE, received {name}", "name a table of BigQuery"
        )
    return TableName(**match.groupdict())


class NewTable:
    """A table to create in an existing dataset.

    Args:
      name: Name of the table. The job that loads it runs in the table's project.

    Raises:
      InputError: If the table already exists, the dataset does not exist, or credentials are missing.
      MachineError: If BigQuery cannot be reached.
    """

    def __init__(self, name: TableName) -> None:
        self._name = name
        with google_cloud.errors(f"{name.project}.{name.dataset}"):
            self._client = google_cloud.bigquery_client(name.project)
            # A job must run in the location of the dataset that it writes to.
            self._location = self._client.get_dataset(f"{name.project}.{name.dataset}").location
        with google_cloud.errors(str(name)):
            try:
                self._client.get_table(str(name))
            except google_cloud.exceptions().NotFound:
                return
        raise self._table_exists_error()

    def load(self, files: Sequence[str], description: Mapping[str, Any]) -> str:
        """Create the table from Parquet files.

        Args:
          files: Paths of the files: either all gs:// URLs, or all local files in one writable folder.
          description: Content of the table's description, which is stored as JSON. The table and the job are labelled
            with the version and the digest in its entry `model`.

        Returns:
          ID of the job.

        Raises:
          InputError: If the table was created in the meantime, or BigQuery rejects the rows. The rows are then not
            written.
          MachineError: If the connection to BigQuery is lost. The table then contains all rows, or does not exist.
        """
        config = self._create_job_config(description)
        with google_cloud.errors(str(self._name)):
            try:
                if is_remote(files[0]):
                    job = self._client.load_table_from_uri(
                        list(files), str(self._name), location=self._location, job_config=config
                    )
                else:
                    with _join_files(files).open("rb") as file:
                        job = self._client.load_table_from_file(
                            file, str(self._name), location=self._location, job_config=config
                        )
                job.result()
            except google_cloud.exceptions().Conflict as error:
                raise self._table_exists_error() from error
        return str(job.job_id)

    def _create_job_config(self, description: Mapping[str, Any]) -> Any:
        from google.cloud import bigquery

        model = description["model"]
        # A label has at most 63 characters, so the digest is shortened to the 12 digits that `runner.py models` shows.
        labels = (
            {"model_version": str(model["version"]), "model_digest": model["digest"][:12]} if "digest" in model else {}
        )
        return bigquery.LoadJobConfig.from_api_repr(
            {
                "labels": labels,
                "load": {
                    "sourceFormat": "PARQUET",
                    "writeDisposition": "WRITE_EMPTY",
                    # Without list inference, a list would become a record with a repeated field `list`.
                    "parquetOptions": {"enableListInference": True},
                    # Names of classes are part of the columns' names. V2 replaces characters that are not allowed.
                    "columnNameCharacterMap": "V2",
                    "destinationTableProperties": {"description": json.dumps(description), "labels": labels},
                },
            }
        )

    def _table_exists_error(self) -> InputError:
        return InputError(
            f"--into: expected a new table, received {self._name}, which exists",
            "name another table, or delete the existing table",
        )


def _join_files(files: Sequence[str]) -> Path:
    """Concatenate Parquet files in bounded memory, because an upload consists of a single file."""
    first = Path(files[0])
    if len(files) == 1:
        return first
    joined = first.with_name("joined.parquet")
    with parquet.ParquetWriter(
        joined, parquet.read_schema(first), compression="zstd", use_compliant_nested_type=True
    ) as writer:
        for file in files:
            for batch in parquet.ParquetFile(file).iter_batches():
                writer.write_batch(batch)
    return joined
