"""Starts `runner.py serve-ui` on a store, asks for the list of all runs, and ends it.

python -m benchmarks.history_page FILE
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys


def main(path: str) -> None:
    """Fails if the page does not come."""
    command = [sys.executable, "runner.py", "serve-ui", "--store", path, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            told = (re.search(r"http://([^/]+)/", line) for line in server.stdout or ())
            place = next(found[1] for found in told if found)
            connection = http.client.HTTPConnection(place)
            connection.request("GET", "/")
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise SystemExit(f"{place} answered {answer.status}")
            print(f"{len(answer.read()):,} bytes")
        finally:
            server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
