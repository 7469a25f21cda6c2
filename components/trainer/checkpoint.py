"""Checkpoints of a training: retain the newest, and restore the newest that is not damaged."""

from __future__ import annotations

import concurrent.futures
import logging
import re
from typing import Any

import tensorflow as tf

from components.trainer.cluster import heartbeat

_NAME = "step"
_CRASHES = (MemoryError, tf.errors.ResourceExhaustedError, tf.errors.UnavailableError, tf.errors.DeadlineExceededError)
"""Errors of the machine or the network, which do not mean that a checkpoint is damaged."""
_INDEX = re.compile(rf"{_NAME}-(\d+)\.index$")


class Checkpoints:
    """The checkpoints in one folder.

    Args:
      folder: Folder of the checkpoints that are restored.
      scratch: Folder to which a process that is not the lead writes. All synchronous replicas must save, because some
        variables are aggregated over them when they are saved.
      keep: Number of checkpoints to retain.
      objects: Name → trackable TensorFlow object to save and restore.
    """

    def __init__(self, folder: str, scratch: str | None, keep: int, **objects: Any) -> None:
        self._folder = folder
        self._latest: int | None = None
        self._writer = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._being_written: concurrent.futures.Future[None] | None = None
        self._checkpoint = tf.train.Checkpoint(**objects)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, scratch or folder, 1 if scratch else keep, checkpoint_name=_NAME
        )

    def save(self, step: int, in_background: bool = False) -> None:
        """Write the checkpoint of a step, unless this step was saved or restored last.

        TensorFlow writes the index last, and in place: a checkpoint that overwrites another of the same step is damaged
        until it is complete.

        Args:
          step: Number of the step, which names the checkpoint.
          in_background: Whether to return before the checkpoint is written, so that training continues. The weights and
            moments may then belong to different steps, and the next call raises the errors of the write. Either way,
            the previous checkpoint is complete first.
        """
        if self._being_written is not None:
            self._being_written.result()
        if in_background:
            self._being_written = self._writer.submit(self._save, step)
        else:
            self._being_written = None
            self._save(step)

    @property
    def is_written(self) -> bool:
        """Whether the checkpoint that was saved last has been written."""
        return self._being_written is None or self._being_written.done()

    def _save(self, step: int) -> None:
        if step != self._latest:
            self._manager.save(checkpoint_number=step)
        self._latest = step
        heartbeat.send_status("saved", step)

    def restore(self) -> int:
        """Restore the newest checkpoint that is not damaged; return its step, or 0 without a checkpoint."""
        step = newest(self._folder)
        if step:
            self._checkpoint.restore(path(self._folder, step)).assert_existing_objects_matched()
        self._latest = step
        heartbeat.send_status("restored", step)
        return step


def path(folder: str, step: int) -> str:
    """Return the path prefix of a checkpoint, which TensorFlow's functions take."""
    return f"{folder}/{_NAME}-{step}"


def steps(folder: str) -> list[int]:
    """Return the steps of the checkpoints in a folder, the newest first.

    They are read from the names of the files, because TensorFlow's list in the file `checkpoint` may be damaged itself.
    """
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return sorted((int(match[1]) for name in names if (match := _INDEX.fullmatch(name))), reverse=True)


def newest(folder: str) -> int:
    """Return the step of the newest checkpoint that is not damaged; 0 without a checkpoint.

    Raises:
      MemoryError, OpError: If memory is full, or a remote folder does not answer.
    """
    for step in steps(folder):
        try:
            _read_through(path(folder, step))
        except _CRASHES:
            raise
        # TensorFlow raises various types here: DataLossError, IndexError, ValueError.
        except Exception as error:
            logging.warning("checkpoint %s is damaged; the previous checkpoint is used: %s", path(folder, step), error)
            heartbeat.send_status("damaged", f"{_NAME}-{step}")
        else:
            return step
    return 0


def _read_through(checkpoint: str) -> None:
    """Read every tensor, which checks its length and its checksum.

    Call it before a restore, because a restore that fails halfway leaves a mixture of two states.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
