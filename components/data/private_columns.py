"""Hash or drop private columns of requests before they are logged, and hash the same columns of other rows to compare.

A hash is HMAC-SHA-256 of the column's name, a zero byte and the value, with a secret key, truncated to 128 bits and
written as 32 hexadecimal digits. Equal values have equal hashes, so hashes can be counted, compared and joined. Without
the key, nobody can find a value by hashing all possible values, which a plain hash would allow. The name separates
columns: equal values of two columns have different hashes.

Sources: H. Krawczyk, M. Bellare and R. Canetti, HMAC: Keyed-Hashing for Message Authentication, RFC 2104, 1997;
section 5 allows to truncate the output to at least half of its bits.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from google.protobuf.message import DecodeError

from components.data.missing import nan_to_null
from components.data.saved_model import OF_COLUMNS, OF_EXAMPLES, is_missing

HASH, DROP = "hash", "drop"
_HASH_BYTES = 16
_DEFAULT = OF_EXAMPLES[0]

Inputs = Mapping[str, npt.NDArray[Any]]
"""Name of an input or output → values; [rows, ...]."""


@dataclass(frozen=True)
class PrivateColumns:
    """Columns whose values are not logged.

    Attributes:
      actions: Name of a column → `hash` or `drop`.
      secret: Key of the hashes; not used if no column is hashed.
    """

    actions: Mapping[str, str]
    secret: bytes = b""

    @property
    def dropped(self) -> frozenset[str]:
        """Names of the columns that are dropped."""
        return frozenset(name for name, action in self.actions.items() if action == DROP)

    def mask_request(self, signature: str, inputs: Inputs) -> Inputs | None:
        """Return the inputs of a request without private values.

        Args:
          signature: Name of the signature.
          inputs: Inputs of the request.

        Returns:
          The masked inputs. None if it is unknown where the inputs of this signature contain columns; such a request
          must not be logged.
        """
        [*names] = inputs
        if signature in OF_COLUMNS or not self.actions.keys().isdisjoint(names):
            return self.mask_arrays(inputs)
        if signature != _DEFAULT or len(names) != 1 or inputs[names[0]].dtype != object:
            return None
        rows = inputs[names[0]]
        examples = np.empty(rows.shape, object)
        try:
            examples[:] = [self._mask_example(example) for example in rows.tolist()]
        except DecodeError:
            return None
        return {names[0]: examples}

    def mask_arrays(self, arrays: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Return arrays by column name without private values. Missing values remain missing."""
        return {
            name: self._hash_array(name, values) if name in self.actions else values
            for name, values in arrays.items()
            if self.actions.get(name) != DROP
        }

    def hash_column(self, name: str, column: pa.Array) -> pa.Array:
        """Hash the values of a column if the column is to be hashed; return it unchanged otherwise.

        Args:
          name: Name of the column.
          column: One text or number per row, null if missing; [rows].

        Returns:
          The hashes as large_binary, null if missing; [rows].
        """
        if self.actions.get(name) != HASH or pa.types.is_null(column.type):
            return column
        encoded = nan_to_null(column).dictionary_encode()
        hashes = [self._hash(name, value) for value in encoded.dictionary.to_pylist()]
        return pa.array(hashes, pa.large_binary()).take(encoded.indices)

    def _hash(self, name: str, value: Any) -> bytes:
        # An integer and its decimal digits have the same hash, because a key may be either in files of labels.
        text = value if isinstance(value, bytes) else str(value).encode()
        return hmac.digest(self.secret, name.encode() + b"\0" + text, "sha256")[:_HASH_BYTES].hex().encode()

    def _hash_array(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        present = ~is_missing(values)
        hashes = np.full(values.shape, b"", object)
        hashes[present] = [self._hash(name, value) for value in values[present].tolist()]
        return hashes

    def _mask_example(self, serialized: bytes) -> bytes:
        example = tf.train.Example.FromString(serialized)
        features = example.features.feature
        for name, action in self.actions.items():
            if name not in features:
                continue
            kind = features[name].WhichOneof("kind")
            values = [*getattr(features[name], kind).value] if kind else []
            del features[name]
            hashes = [self._hash(name, value) for value in values if not isinstance(value, float) or np.isfinite(value)]
            if action == HASH and hashes:
                features[name].bytes_list.value.extend(hashes)
        return bytes(example.SerializeToString())
