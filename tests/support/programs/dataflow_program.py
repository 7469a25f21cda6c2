"""Runs StatisticsGen with the engine's options, as its node does; for a fake of Dataflow, so without credentials.

Reads {"examples", "splits", "statistics", "beam_args"} on stdin, and writes {"done": true} at its end.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from apache_beam.internal.gcp import auth
from apache_beam.options.pipeline_options import GoogleCloudOptions
from tfx.components.statistics_gen.executor import Executor
from tfx.types import artifact_utils, standard_artifacts


def _main(request: dict[str, Any]) -> None:
    # Both would ask Google's servers, for minutes.
    auth._Credentials.get_service_credentials = classmethod(lambda cls, options=None: None)
    GoogleCloudOptions._warn_if_soft_delete_policy_enabled = lambda self, name: None
    examples = standard_artifacts.Examples()
    examples.uri = request["examples"]
    examples.split_names = artifact_utils.encode_split_names(request["splits"])
    examples.set_string_custom_property("payload_format", "FORMAT_TF_EXAMPLE")
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = request["statistics"]
    context = Executor.Context(beam_pipeline_args=request["beam_args"], tmp_dir=request["statistics"], unique_id="1")
    Executor(context).Do({"examples": [examples]}, {"statistics": [statistics]}, {"exclude_splits": "[]"})
    sys.stdout.write(json.dumps({"done": True}) + "\n")


if __name__ == "__main__":
    _main(json.loads(sys.stdin.read()))
