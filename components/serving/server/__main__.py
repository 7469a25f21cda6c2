"""Run the model server: `python -m components.serving.server`."""

import sys

from components.serving.server_process import load

if __name__ == "__main__":
    load()(*sys.argv[1:])
