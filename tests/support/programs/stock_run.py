"""Runs stock TFX's CsvExampleGen, StatisticsGen and SchemaGen by its LocalDagRunner, again and again.

Reads {"folder": …, "runs": how many}: the folder holds rows/ with a CSV file, and gets metadata.db. From the second run
on SchemaGen has another parameter. Writes {"runs": […]}: their ids, oldest first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto
from tfx.components import CsvExampleGen, SchemaGen, StatisticsGen
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner


def main(folder: Path, count: int) -> list[str]:
    """Run the pipeline, and print the IDs of the runs in the store."""
    connection = metadata.sqlite_metadata_connection_config(str(folder / "metadata.db"))
    for number in range(count):
        rows = CsvExampleGen(input_base=str(folder / "rows"))
        statistics = StatisticsGen(examples=rows.outputs["examples"])
        schema = SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=number == 0)
        stock_pipeline = pipeline.Pipeline(
            pipeline_name="stock",
            pipeline_root=str(folder / "root"),
            components=[rows, statistics, schema],
            enable_cache=True,
            metadata_connection_config=connection,
            beam_pipeline_args=[
                "--direct_running_mode=in_memory",
                "--direct_num_workers=1",
                "--sdk_container_image=none",
            ],
        )
        LocalDagRunner().run(stock_pipeline)
    runs: list[proto.Context] = mlmd.MetadataStore(connection).get_contexts_by_type("pipeline_run")
    return [run.name for run in sorted(runs, key=lambda run: run.id)]


if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.stdout.write(json.dumps({"runs": main(Path(request["folder"]), request["runs"])}) + "\n")
