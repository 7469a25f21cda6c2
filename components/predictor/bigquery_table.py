"""Predictions as a new table in BigQuery: Parquet files are loaded by one job, so the table has all rows or none."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyarrow import parquet

from components import google_cloud
from components.errors import InputError
from components.files import is_remote

_NAME = re.compile(r"(?P<project>(?:[\w.-]+:)?[a-z][\w-]*)[.:](?P<dataset>\w+)\.(?P<table>[^.:/$@`]+)")


@dataclasses.dataclass(frozen=True)
class TableName:
    """The full name of a table."""

    project: str
    dataset: str
    table: str

    def __str__(self) -> str:
        return f"{self.project}.{self.dataset}.{self.table}"


def parse(name: str) -> TableName:
    """Parses `project.dataset.table` or `project:dataset.table`.

    Raises:
      InputError: it is neither.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"--output: expected a table as PROJECT.DATASET.TABLE, received {name}", "name a table of BigQuery"
        )
    return TableName(**match.groupdict())


class NewTable:
    """A table to create, in a dataset that exists.

    Args:
      name: its name; the job that loads it runs in its project.

    Raises:
      InputError: the table exists, the dataset does not, or there are no credentials for them.
      MachineError: BigQuery cannot be reached.
    """

    def __init__(self, name: TableName) -> None:
        self._name = name
        with google_cloud.errors(f"{name.project}.{name.dataset}"):
            self._client = google_cloud.bigquery_client(name.project)
            # A job runs where the dataset is.
            self._location = self._client.get_dataset(f"{name.project}.{name.dataset}").location
        with google_cloud.errors(str(name)):
            try:
                self._client.get_table(str(name))
            except google_cloud.exceptions().NotFound:
                return
        raise self._exists()

    def load(self, files: Sequence[str], description: Mapping[str, Any]) -> str:
        """Creates the table from Parquet files.

        Args:
          files: all of them at gs://, or all on this disk, in one folder that is writable.
          description: what the table's description says, as JSON; `model` of it has the version and the digest that
            label the table and the job.

        Returns:
          The id of the job.

        Raises:
          InputError: the table was created in the meantime, or BigQuery does not take the rows; there is no table then.
          MachineError: BigQuery cannot be reached any more; the table has all rows then, or does not exist.
        """
        config = self._config(description)
        with google_cloud.errors(str(self._name)):
            try:
                if is_remote(files[0]):
                    job = self._client.load_table_from_uri(
                        list(files), str(self._name), location=self._location, job_config=config
                    )
                else:
                    with _one_file(files).open("rb") as file:
                        job = self._client.load_table_from_file(
                            file, str(self._name), location=self._location, job_config=config
                        )
                job.result()
            except google_cloud.exceptions().Conflict as error:
                raise self._exists() from error
        return str(job.job_id)

    def _config(self, description: Mapping[str, Any]) -> Any:
        from google.cloud import bigquery

        model = description["model"]
        # A label has at most 63 characters; `runner.py models` shows as many digits of a digest.
        labels = (
            {"model_version": str(model["version"]), "model_digest": model["digest"][:12]} if "digest" in model else {}
        )
        return bigquery.LoadJobConfig.from_api_repr(
            {
                "labels": labels,
                "load": {
                    "sourceFormat": "PARQUET",
                    "writeDisposition": "WRITE_EMPTY",
                    # Otherwise a list is a record with a field `list` of records.
                    "parquetOptions": {"enableListInference": True},
                    # Classes are part of the columns' names; what a name cannot have is replaced.
                    "columnNameCharacterMap": "V2",
                    "destinationTableProperties": {"description": json.dumps(description), "labels": labels},
                },
            }
        )

    def _exists(self) -> InputError:
        return InputError(
            f"--output: expected a new table, received {self._name}, which exists",
            "name another table, or delete this one",
        )


def _one_file(files: Sequence[str]) -> Path:
    """Joins files, because an upload is one file; in bounded memory."""
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
