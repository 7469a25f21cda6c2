"""Start `runner.py runs serve` on a store, measure a request for the list of all runs, and end the server.

python -m benchmarks.history_page FILE
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys

from benchmarks import measure


def main(path: str) -> None:
    """Measure the request; fail if the page is not complete."""
    command = [sys.executable, "runner.py", "runs", "serve", "--store", path, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            matches = (re.search(r"http://([^/]+)/", line) for line in server.stdout or ())
            place = next(match[1] for match in matches if match)
            measure.report(lambda: _request(place))
        finally:
            server.terminate()


def _request(place: str) -> None:
    connection = http.client.HTTPConnection(place)
    connection.request("GET", "/")
    answer = connection.getresponse()
    if answer.status != http.HTTPStatus.OK or not answer.read().endswith(b"</html>"):
        raise SystemExit(f"{place} answered {answer.status}, or not to the end")


if __name__ == "__main__":
    main(sys.argv[1])
