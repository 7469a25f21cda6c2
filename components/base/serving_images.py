"""Container images of the model servers, for the defaults of the config and the files in `deploy/`.

TensorFlow reads graphs of older releases, but not always those of newer ones (https://www.tensorflow.org/guide/versions).
A model server should therefore be at least as new as the TensorFlow that exports the model.
"""

from __future__ import annotations

TENSORFLOW_SERVING = "tensorflow/serving:2.21.0"
"""Release of TensorFlow Serving for the models of both release lines. It moves with the newer line's TensorFlow:
tests/unit/deploy/test_deploy.py compares them."""
VERTEX_PREDICTION = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
"""The newest prebuilt container of Vertex AI for TensorFlow (November 2026), which is older than the TensorFlow of both
lines. tests/e2e/test_predictions.py loads an exported model in its release of TensorFlow."""
