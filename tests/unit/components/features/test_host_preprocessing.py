"""The fingerprint that hashed ids are made of; the operations are compared with the graph in contract/test_ops.py."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from components.features.host.preprocessing import fingerprint


def test_fingerprint_is_tensorflows_for_every_length() -> None:
    random = np.random.default_rng(0)
    texts = [random.bytes(length) for length in range(300)]
    # Hashed in TensorFlow modulo the number of buckets: several, since one alone has not all bits.
    for buckets in ((1 << 61) - 1, (1 << 63) - 25):
        expected = tf.strings.to_hash_bucket_fast(texts, buckets).numpy().tolist()
        assert [fingerprint(text) % buckets for text in texts] == expected
