"""Checkpoints of training: written whole, kept a few deep, and read back from the newest that is not damaged."""

from __future__ import annotations

import logging
import re
from typing import Any

import tensorflow as tf

from components.trainer.cluster import signs

_NAME = "step"
_INDEX = re.compile(rf"{_NAME}-(\d+)\.index$")


class Checkpoints:
    """The checkpoints in one folder.

    Args:
      folder: where they lie.
      scratch: where this process writes instead, if it is not the one whose checkpoints count. All replicas in step
        have to save, since some variables are only whole in all of them together.
      keep: how many are kept.
      objects: what is saved and restored, by name; trackable objects of TensorFlow.
    """

    def __init__(self, folder: str, scratch: str | None, keep: int, **objects: Any) -> None:
        self._folder = folder
        self._checkpoint = tf.train.Checkpoint(**objects)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, scratch or folder, 1 if scratch else keep, checkpoint_name=_NAME
        )

    def save(self, step: int) -> None:
        """Writes one. TensorFlow writes its index last and by renaming, so that half of one is never taken for one."""
        self._manager.save(checkpoint_number=step)
        signs.tell("saved", step)

    def restore(self) -> int:
        """Restores from the newest checkpoint that can be read; returns its step, or 0 if there is none."""
        step = newest(self._folder)
        if step:
            self._checkpoint.restore(path(self._folder, step)).assert_existing_objects_matched()
        signs.tell("restored", step)
        return step


def path(folder: str, step: int) -> str:
    """The path of a checkpoint, as TensorFlow takes it."""
    return f"{folder}/{_NAME}-{step}"


def steps(folder: str) -> list[int]:
    """The steps of the checkpoints in a folder, the newest first.

    TensorFlow's own list in the file `checkpoint` is not asked: it may be the thing that is damaged.
    """
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return sorted((int(found[1]) for name in names if (found := _INDEX.fullmatch(name))), reverse=True)


def newest(folder: str) -> int:
    """The step of the newest checkpoint all of which can be read; 0 if there is none."""
    for step in steps(folder):
        try:
            _read_through(path(folder, step))
        # TensorFlow raises what it likes here: DataLossError, IndexError, ValueError.
        except Exception as error:
            logging.warning("checkpoint %s is damaged, the one before it is used: %s", path(folder, step), error)
            signs.tell("damaged", f"{_NAME}-{step}")
        else:
            return step
    return 0


def _read_through(checkpoint: str) -> None:
    """Reads every tensor, which checks its length and its checksum.

    It is done before anything is restored: a restore that fails half-way would leave weights of two states.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
