#!/usr/bin/env bash
# Resolves pyproject.toml anew for both release lines and writes requirements.txt: versions, hashes, markers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(tools/setup.sh --uv)
# uv stops at a broken shim on PATH, so it gets a Python that was seen to run.
python=$(tools/setup.sh --choose | head -n 1)

# uv.lock names the index it was read from, which is nobody else's business: only the export is committed.
"$uv" lock --quiet --python "$python"
{
  echo "# The lock of both release lines, made from pyproject.toml by \`make lock\`: don't edit it by hand."
  "$uv" export --quiet --python "$python" --format requirements-txt --no-emit-project --no-header --no-annotate
} >requirements.txt.new
mv requirements.txt.new requirements.txt
