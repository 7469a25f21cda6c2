"""Run the pipeline: `python runner.py --local`; see `python runner.py --help`."""

import sys

if __name__ == "__main__":
    try:
        from pipeline.cli import main

        sys.exit(main())
    except KeyboardInterrupt:
        # Ctrl-C during imports, or in a verb that does not clean up.
        sys.exit(130)
