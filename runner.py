"""Run the pipeline: `python runner.py --local`; see `python runner.py --help`."""

import importlib.util
import sys
from pathlib import Path

if __name__ == "__main__":
    try:
        from pipeline.cli import main

        sys.exit(main())
    except KeyboardInterrupt:
        # Ctrl-C during imports, or in a verb that does not clean up.
        sys.exit(130)
    except ModuleNotFoundError as error:
        if importlib.util.find_spec("tfx"):
            raise
        # This is not the Python of `make setup`, and lacks what prints errors.
        command = "source .venv/bin/activate" if (Path(__file__).parent / ".venv").exists() else "make setup"
        sys.stderr.write(
            f"error: expected a Python with the packages of this project, but {sys.executable} lacks {error.name}\n"
            f"  remedy: run `{command}`\n"
        )
        sys.exit(2)
