"""Runs Transform in two forked workers, in a process where TensorFlow has not started threads.

python forked_transform.py EXAMPLES OUTPUT: folder of raw examples (Parquet) and output folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from pipeline.orchestration.engines.direct import get_fork_options
from tests.support.data.all_operations import SCHEMA, small_plan
from tests.support.runs.transform_runs import transform


def main(examples: str, output: str) -> None:
    """Transform."""
    given = standard_artifacts.Examples()
    given.uri, given.split_names = examples, '["train", "eval"]'
    examples_utils.set_payload_format(given, example_gen_pb2.FORMAT_PARQUET)
    transform(given, SCHEMA, Path(output), small_plan(), beam=(*get_fork_options(2), "--sdk_container_image=none"))


if __name__ == "__main__":
    main(*sys.argv[1:])
