"""Has a command run in a fork of a test's node server: forked_client.py SOCKET FILE ARGUMENTS; see forked_command."""

import json
import os
import socket
import sys
from pathlib import Path


def main(address: str, *arguments: str) -> int:
    """Send the command line; write the command's output; return its exit code, or die by its signal."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as answer:
            code, out, err = json.load(answer)
    sys.stdout.write(out)
    sys.stderr.write(err)
    sys.stdout.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *sys.argv[3:]))
