"""`python -m components.serving.server`."""

from __future__ import annotations

import sys

from components.serving.server.main import main

if __name__ == "__main__":
    sys.exit(main())
