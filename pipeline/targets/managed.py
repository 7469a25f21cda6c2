"""Alias for one release: Vertex AI pipelines compiled earlier start `python -m pipeline.targets.managed`."""

import sys

from pipeline.orchestration.vertex_entrypoint import main

if __name__ == "__main__":
    sys.exit(main())
