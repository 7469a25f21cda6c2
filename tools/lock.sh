#!/usr/bin/env bash
# Resolve pyproject.toml for both release lines and write requirements.txt: versions, hashes, markers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(tools/setup.sh --uv)
# uv stops at a broken shim on PATH, so give it a Python that was tested.
python=$(tools/setup.sh --choose | head -n 1)

# uv.lock contains the address of the package index, which is private: only the export is committed.
"$uv" lock --quiet --python "$python"
{
  echo "# The lock of both release lines, made from pyproject.toml by \`make lock\`: don't edit it by hand."
  "$uv" export --quiet --python "$python" --format requirements-txt --no-emit-project --no-header --no-annotate
} >requirements.txt.new
mv requirements.txt.new requirements.txt
