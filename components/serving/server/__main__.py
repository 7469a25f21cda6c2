"""`python -m components.serving.server`."""

from __future__ import annotations

import os
import sys

from components.serving.server import GRPC_ENVIRONMENT

if __name__ == "__main__":
    for name, value in GRPC_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Not before, as this imports gRPC's library.
    from components.serving.server.main import main

    sys.exit(main())
