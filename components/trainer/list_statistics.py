"""The lists of a list-wise loss: what a training can learn from them, and how they divide a batch."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.features import feature_names


def check(keys: npt.NDArray[np.int64], labels: npt.NDArray[Any], size: int) -> None:
    """Log the number of lists and of rows that do not contribute to the loss.

    Args:
      keys: Keys of the lists; [rows].
      labels: 0 or 1; [rows].
      size: Maximum number of rows that are compared with each other.

    Raises:
      InputError: If no list contains rows with label 1 and rows with label 0.
    """
    is_listed = keys != feature_names.NO_ROW_KEY
    _, lists = np.unique(keys[is_listed], return_inverse=True)
    rows, positives = np.bincount(lists), np.bincount(lists, labels[is_listed])
    learned = (positives > 0) & (positives < rows)
    logging.info(
        "lists: %d with %d rows to train on; %d are longer than model.list_size and are divided at random; %d have "
        "rows of one label only, and do not change the model; %d rows are not in a list",
        len(rows),
        rows.sum(),
        np.count_nonzero(rows > size),
        np.count_nonzero(~learned),
        np.count_nonzero(~is_listed),
    )
    if not learned.any():
        raise InputError(
            f"model.list_column: expected lists with rows of both labels, received none among {len(rows):,} lists of "
            f"{len(keys):,} training rows",
            "name the column of the query, the session or the user, or choose another loss",
        )


def check_batch(batch_rows: int, size: int, parts: int) -> None:
    """Check that the lists of a replica's batch can be divided into parts.

    Args:
      batch_rows: Rows in the batch of a replica.
      size: Number of rows of a list, with padding.
      parts: Number of parts of a batch whose gradients are added up.

    Raises:
      InputError: If a list would be divided.
    """
    if batch_rows % (size * parts):
        raise InputError(
            f"training.batch_size: expected a multiple of model.list_size times the parts of a replica's batch, "
            f"{size * parts}, received {batch_rows} rows for each replica",
            "choose a multiple of list_size for each replica",
        )
