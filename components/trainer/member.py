"""One task of a cluster that somebody else starts: `python -m components.trainer.member JOB`, with TF_CONFIG set.

JOB is the path of a JSON file as `runner.py manifest` writes it: the Trainer's inputs, outputs and parameters.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path

from components.errors import find
from components.trainer.cluster import roles

AGAIN = 138
"""Exit code of a task that failed and may be started again: what TFJob's ExitCode policy keeps for the user's own.

https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/"""

_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1"} | roles.ENVIRONMENT


def main(job: str) -> int:
    """Acts as this process's task; returns its exit code."""
    os.environ.update(_ENVIRONMENT)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    try:
        role = roles.role()
        if role is not None and role.is_server:
            # No TFX: it would take ten seconds to import, and a server has no use for it.
            from components.trainer.cluster.server import serve

            serve(role, Path(tempfile.mkdtemp()))
        else:
            _train(job)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else AGAIN
    except Exception as error:
        logging.exception("%s failed", job)
        # What is told is the config's, the data's or the disk's fault, and no second start would mend it.
        told = find(error)
        return AGAIN if told is None else told.exit_code
    return 0


def _train(job: str) -> None:
    from tfx.dsl.io import fileio
    from tfx.types import artifact_utils

    from components.trainer.executor import Executor

    with fileio.open(job) as file:
        told = json.loads(file.read())
    inputs = artifact_utils.parse_artifact_dict(told["inputs"])
    outputs = artifact_utils.parse_artifact_dict(told["outputs"])
    Executor().Do(inputs, outputs, told["exec_properties"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m components.trainer.member JOB")
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # No finalizers: collective operations of TensorFlow now and then crash while they are taken down.
    os._exit(code)
