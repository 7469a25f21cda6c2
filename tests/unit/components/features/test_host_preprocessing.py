"""The fingerprint behind hashed IDs equals TensorFlow's. tests/contract/test_ops.py compares the operations."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from components.features.host.preprocessing import fingerprint


def test_fingerprint_equals_tensorflows_for_every_length() -> None:
    random = np.random.default_rng(0)
    texts = [random.bytes(length) for length in range(300)]
    # TensorFlow returns the hash only modulo a number of buckets. One number does not reveal all 64 bits, so use two.
    for buckets in ((1 << 61) - 1, (1 << 63) - 25):
        expected = tf.strings.to_hash_bucket_fast(texts, buckets).numpy().tolist()
        assert [fingerprint(text) % buckets for text in texts] == expected
