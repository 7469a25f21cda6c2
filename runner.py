"""Runs the pipeline: `python runner.py --local`; see `python runner.py --help`."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
