"""What has to stand in the environment before TensorFlow is imported, in every process of ours that does it."""

ENVIRONMENT = {
    # tf.keras is tf_keras on both release lines, but only if this is said before TensorFlow's first import.
    "TF_USE_LEGACY_KERAS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    "PYTHONUNBUFFERED": "1",
}
