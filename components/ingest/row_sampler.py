"""Keep a share of the rows, chosen by the hash of a row: the same rows in every run, format and order of files."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.ingest.config import IngestedSample
from components.ingest.row_filter import RowFilter
from components.ingest.split_assignment import hash_rows, mix

_SEED = np.uint64(0x5851F42D4C957F2D)
"""Makes the choice independent of the split, which follows from the same hash."""


class RowSampler:
    """Chooses rows, and weights them by the inverse of the share of their label.

    The expected sums of weighted rows are the sums of all rows (Horvitz & Thompson 1952, A Generalization of Sampling
    Without Replacement From a Finite Universe).

    Args:
      config: The shares.
      unhashed: Columns that do not influence the choice.

    Attributes:
      rows_by_part: Number of rows in each part of the config so far, before a share of them is kept.
    """

    def __init__(self, config: IngestedSample, unhashed: Collection[str] = ()) -> None:
        self._unhashed = unhashed
        self._fraction = config.fraction
        self.rows_by_part = [0] * len(config.parts)
        self._shares = [(RowFilter(part.condition), part.is_negated, part.share) for part in config.parts]

    def draw(self, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], pa.Array | None]:
        """Return whether each row is kept, bool of shape [rows], and its weight, float32; None if all are equal.

        Args:
          rows: Columns of int64, float32, binary or null, or of lists of these.
        """
        shares = np.ones(rows.num_rows)
        for number, (condition, is_negated, share) in enumerate(self._shares):
            is_part = condition.select(rows)[0] != is_negated
            shares[is_part] = share
            self.rows_by_part[number] += int(np.count_nonzero(is_part))
        # 53 bits of the hash are a uniform number in [0, 1) that float64 represents exactly.
        uniform = (mix(hash_rows(rows, unhashed=self._unhashed) ^ _SEED) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        weights = pa.array((1 / shares).astype(np.float32)) if self._shares else None
        return uniform < shares * self._fraction, weights
