"""What a container of Vertex AI Pipelines runs: a node's executor, or before it ExampleGen's driver.

TFX has an entry point for that. This one also tells the executor which run it is in, gives it a folder that outlives
a failed attempt, drives our ExampleGen (several spans, a fingerprint over all files), and tells errors as all our
commands do.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from components.errors import MachineError, find
from pipeline.targets.environment import ENVIRONMENT

EXECUTE, DRIVE = "execute", "drive"
_MODULE = "pipeline.targets.managed"


def command(what: str, pipeline: str) -> list[str]:
    """The container's command; what TFX puts into the spec, and Beam's options, come behind it.

    Args:
      what: EXECUTE or DRIVE.
      pipeline: its name.
    """
    return ["python", "-m", _MODULE, what, pipeline]


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line says; returns the exit code, 1 for whatever has failed."""
    options, beam_args = _parser().parse_known_args(arguments)
    # Before TensorFlow's first import.
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from pipeline.targets import invocation

        # Only now: what is imported has much to say, and nothing of this run.
        form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form, force=True)
        logging.captureWarnings(True)
        call = invocation.read(
            options.json_serialized_invocation_args, options.json_serialized_inputs_spec_args, options.pipeline
        )
        if options.what == DRIVE:
            invocation.drive(call, options.executor_class_path)
        else:
            invocation.execute(call, options.executor_class_path, beam_args)
    # A user's code may also call sys.exit: that is a failure of the node as well.
    except (Exception, SystemExit) as error:
        from pipeline.commands.main import tell

        logging.exception("%s failed", options.executor_class_path)
        first_line = next(iter(str(error).strip().splitlines()), "")
        tell(
            find(error)
            or MachineError(
                f"{options.executor_class_path} failed: {type(error).__name__}: {first_line}",
                "see the full cause above, in the task's log",
            )
        )
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    """The names are those that TFX writes into a spec."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", allow_abbrev=False)
    parser.add_argument("what", choices=(EXECUTE, DRIVE))
    parser.add_argument("pipeline", help="the pipeline's name")
    parser.add_argument("--executor_class_path", required=True, help="import path of the executor, or of the driver")
    parser.add_argument("--json_serialized_invocation_args", required=True, help="the ExecutorInput")
    parser.add_argument("--json_serialized_inputs_spec_args", required=True, help="types of the parameters")
    return parser


if __name__ == "__main__":
    sys.exit(main())
