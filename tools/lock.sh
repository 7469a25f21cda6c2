#!/usr/bin/env bash
# Resolve pyproject.toml for both release lines; write requirements.txt and requirements-cuda.txt: versions, hashes,
# markers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(tools/setup.sh --uv)
# uv stops at a broken shim on PATH, so give it a Python that was tested.
python=$(tools/setup.sh --choose | head -n 1)

# uv.lock contains the address of the package index, which is private: only the export is committed.
"$uv" lock --quiet --python "$python"
export_lock() {
  "$uv" export --quiet --python "$python" --format requirements-txt --no-emit-project --no-header --no-annotate "$@"
}
{
  echo "# The lock of both release lines, made from pyproject.toml by \`make lock\`: don't edit it by hand."
  export_lock
} >requirements.txt.new
{
  echo "# What the extra cuda adds to requirements.txt, made by \`make lock\`: don't edit it by hand."
  export_lock --extra cuda | diff --unchanged-group-format= --changed-group-format='%>' requirements.txt.new - || true
} >requirements-cuda.txt.new
mv requirements.txt.new requirements.txt
mv requirements-cuda.txt.new requirements-cuda.txt
