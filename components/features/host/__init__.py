"""The declared operations without TensorFlow: export them as data, and compute them with NumPy."""

EXPORTED_OPS = (
    *("z_score", "log", "min_max", "clip", "pass_through", "missing", "piecewise_linear", "cyclical", "bucketize"),
    *("vocab", "hash", "cross", "image"),
)
"""Operations that `preprocessing` computes. For an image, the host must decode the pixels."""
