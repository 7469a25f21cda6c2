"""Run the model server: `python -m components.serving.server`."""

import os
import sys

from components.compat.grpc import OLDER_POLLING
from components.compat.tensorflow import GROWING_GPU_MEMORY, import_for_predictions

if __name__ == "__main__":
    for name, value in (OLDER_POLLING | GROWING_GPU_MEMORY).items():  # before gRPC and TensorFlow are loaded
        os.environ.setdefault(name, value)
    import_for_predictions()
    from components.serving.server.app import main

    sys.exit(main())
