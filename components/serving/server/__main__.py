"""Run the model server: `python -m components.serving.server`."""

import os
import sys

if __name__ == "__main__":
    # gRPC reads this when it is imported: with its older way of polling, a request takes 10 % less CPU time.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    from components.serving.server.app import main

    sys.exit(main())
