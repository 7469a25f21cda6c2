"""The declared operations without TensorFlow: exported as data, and computed by NumPy on hosts that lack it."""

EXPORTED_OPS = (
    *("z_score", "log", "min_max", "clip", "pass_through", "missing", "piecewise_linear", "cyclical", "bucketize"),
    *("vocab", "hash", "cross", "image"),
)
"""The operations that `preprocessing` computes; of an image the host makes the pixels."""
