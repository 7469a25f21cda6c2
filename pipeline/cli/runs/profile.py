"""`runner.py runs profile`: profile the next steps of a running training."""

from __future__ import annotations

import argparse
import sys

from components.base.errors import InputError
from pipeline.cli import options as shared

HELP = (
    "Profile the next steps of a running training, which continues. TensorBoard shows the profile in its tab Profile. "
    "In a cluster, the process that saves checkpoints is profiled."
)
EXAMPLE = "python runner.py runs profile --config configs/taxi.yaml --steps 20"

_STEPS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_config(parser)
    parser.add_argument(
        "--steps", type=_parse_steps, default=_STEPS, help=f"number of steps (default: {_STEPS}), rounded up to calls"
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", help="folder of the ModelRun (default: the newest in the config's output)"
    )


def run(options: argparse.Namespace) -> int:
    from components.data import file_io
    from components.trainer import profile_request

    folder = options.folder or _find_model_run(str(shared.load_config(options).config.paths().artifacts))
    if not file_io.file_system(folder).glob(file_io.join(folder, "train/*tfevents*")):
        raise InputError(f"{folder}: expected a training with TensorBoard's files", "wait until its first steps")
    if file_io.file_system(folder).exists(file_io.join(folder, "input_wait.json")):
        raise InputError(f"{folder}: expected a running training, received one that has ended", "set --folder")
    profile_request.write(folder, options.steps)
    sys.stdout.write(f"requested a profile of {options.steps} steps in {folder}\n")
    return 0


def _find_model_run(artifacts: str) -> str:
    """Return the folder of the newest ModelRun.

    Raises:
      InputError: If there is none.
    """
    from components.data import file_io

    pattern = file_io.join(artifacts, "Trainer/model_run/*")
    folders: list[str] = [path.rstrip("/") for path in file_io.file_system(pattern).glob(pattern)]
    numbered = {int(number): path for path in folders if (number := path.rpartition("/")[2]).isdigit()}
    if not numbered:
        raise InputError(f"{pattern}: expected a training, received none", "start a run, or set --folder")
    return numbered[max(numbered)]


def _parse_steps(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a positive number, received {text!r}")
    return int(text)
