"""Entry point of the containers of Vertex AI Pipelines, which runs a node's executor or ExampleGen's driver.

It replaces TFX's entry point, which does not pass the ID of the run to the executor, does not provide a folder that
outlives a failed attempt, and does not support a driver for several spans with a fingerprint of all files.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from components.base.errors import to_error
from components.compat.imports import speed_up_imports
from components.compat.tensorflow import set_environment

EXECUTE, DRIVE = "execute", "drive"
_MODULE = "pipeline.orchestration.vertex_entrypoint"


def command(action: str, pipeline: str) -> list[str]:
    """Return the command of a container, to which TFX appends its arguments and Beam's options.

    Args:
      action: EXECUTE or DRIVE.
      pipeline: Name of the pipeline.
    """
    return ["python", "-m", _MODULE, action, pipeline]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, which is 1 for every failure."""
    options, beam_args = _make_parser().parse_known_args(arguments)
    # Both must come before the first import of TensorFlow and TFX.
    set_environment()
    speed_up_imports()
    try:
        from components.compat.beam import cache_introspection
        from pipeline.orchestration import vertex_executor

        cache_introspection()
        # Logging is set up after the imports, because their log lines are not about this run.
        form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form, force=True)
        logging.captureWarnings(True)
        call = vertex_executor.read(
            options.json_serialized_invocation_args, options.json_serialized_inputs_spec_args, options.pipeline
        )
        if options.action == DRIVE:
            vertex_executor.drive(call, options.executor_class_path)
        else:
            vertex_executor.execute(call, options.executor_class_path, beam_args)
    # The user's code may call sys.exit, which must be a failure of the node as well.
    except (Exception, SystemExit) as error:
        from pipeline.core.text import print_error

        logging.exception("%s failed", options.executor_class_path)
        print_error(to_error(options.executor_class_path, error, "see the full cause above, in the task's log"))
        return 1
    return 0


def _make_parser() -> argparse.ArgumentParser:
    """Create the parser of `command` and of the options that TFX appends to it."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", allow_abbrev=False)
    parser.add_argument("action", choices=(EXECUTE, DRIVE))
    parser.add_argument("pipeline", help="name of the pipeline")
    parser.add_argument("--executor_class_path", required=True, help="import path of the executor, or of the driver")
    parser.add_argument("--json_serialized_invocation_args", required=True, help="the ExecutorInput")
    parser.add_argument("--json_serialized_inputs_spec_args", required=True, help="types of the parameters")
    return parser


if __name__ == "__main__":
    sys.exit(main())
