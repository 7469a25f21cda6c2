"""List all runs of a store with the states of their nodes, through ML Metadata's library.

python -m benchmarks.history_program FILE
"""

from __future__ import annotations

import sys

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto


def main(path: str) -> None:
    """Print a line for each run."""
    config = proto.ConnectionConfig()
    config.sqlite.filename_uri = path
    config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READONLY
    store = mlmd.MetadataStore(config)
    for run in store.get_contexts_by_type("pipeline_run"):
        states = {}
        for execution in store.get_executions_by_context(run.id):
            [node] = [
                context.name for context in store.get_contexts_by_execution(execution.id) if context.type == "node"
            ]
            states[node] = proto.Execution.State.Name(execution.last_known_state)
        print(run.name, states)


if __name__ == "__main__":
    main(sys.argv[1])
