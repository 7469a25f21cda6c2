"""One task of a cluster that an operator starts: `python -m components.trainer.cluster_task JOB`, with TF_CONFIG set.

JOB is a job file. A Trainer with `training.where` writes its inputs, outputs and parameters; a Tuner writes a trial.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from components.base.errors import find
from components.base.processes import end_at_sigterm, exit_now
from components.base.registry import import_object
from components.compat.grpc import FAIL_FAST
from components.compat.tensorflow import GROWING_GPU_MEMORY, LEGACY_KERAS
from components.trainer.cluster import tf_config
from components.trainer.cluster.chief_watch import ChiefWatch

RETRYABLE = 138
"""Exit code of a task that failed and may be restarted: the code that TFJob's ExitCode policy reserves for users.

https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/"""


def main(job: str) -> int:
    """Run the task of this process; return its exit code."""
    os.environ.update(LEGACY_KERAS | GROWING_GPU_MEMORY | FAIL_FAST)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    try:
        role = tf_config.role()
        if role is not None and role.is_server:
            if tf_config.ELASTIC_VARIABLE in os.environ:
                end_at_sigterm()
            else:
                # When a job is deleted or evicted, all tasks receive SIGTERM at once. The chief then saves a checkpoint
                # of the variables that it reads from the servers. Kubernetes kills a task after its grace period.
                chief = ChiefWatch(role.cluster["chief"][0])
                end_at_sigterm(chief.wait_for_end)
                chief.start()
            # Do not import TFX, which a server does not use and which takes ten seconds to import.
            from components.trainer.cluster.task_server import serve

            serve(role, Path(tempfile.mkdtemp()))
        else:
            # This handler applies until the training loop saves a checkpoint at SIGTERM.
            signal.signal(signal.SIGTERM, lambda *_: exit_now(128 + signal.SIGTERM))
            _train(job)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else RETRYABLE
    except Exception as error:
        logging.exception("%s failed", job)
        # The cause of a PipelineError is the config, the data or the disk: a restart would not fix it.
        pipeline_error = find(error)
        return RETRYABLE if pipeline_error is None else pipeline_error.exit_code
    return 0


def _train(job: str) -> None:
    from tfx.dsl.io import fileio

    from components.trainer.executor import Executor
    from components.trainer.remote import job_file

    with fileio.open(job) as file:
        text = file.read()
    if call := job_file.read_call(text):
        function, arguments = call
        import_object(function)(**arguments)
    else:
        Executor().Do(*job_file.read(text))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m components.trainer.cluster_task JOB")
    # TensorFlow's collective operations sometimes crash when they are finalized.
    exit_now(main(sys.argv[1]))
