#!/usr/bin/env bash
# Resolve pyproject.toml for both release lines; write requirements.txt, and requirements-EXTRA.txt for each extra: versions,
# hashes, markers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(tools/setup.sh --uv)
# uv stops at a broken shim on PATH, so give it a Python that was tested.
python=$(tools/setup.sh --choose | sed -n 1p)

# uv.lock contains the address of the package index, which is private: only the export is committed.
"$uv" lock --quiet --python "$python"
export_lock() {
  "$uv" export --quiet --python "$python" --format requirements-txt --no-emit-project --no-header --no-annotate "$@"
}
added() { # the entries of standard input, each with its hashes, that requirements.txt.new does not have
  "$python" -c '
import re, sys
known, extended = ((re.split(r"\n(?=\S)", text)) for text in (open("requirements.txt.new").read(), sys.stdin.read()))
print("\n".join(entry.rstrip("\n") for entry in extended if entry.rstrip("\n") not in {one.rstrip("\n") for one in known}))'
}
{
  echo "# The lock of both release lines, made from pyproject.toml by \`make lock\`: don't edit it by hand."
  export_lock
} >requirements.txt.new
for extra in cuda mlflow signing s3 azure; do
  {
    echo "# What the extra $extra adds to requirements.txt, made by \`make lock\`: don't edit it by hand."
    export_lock --extra "$extra" | added
  } >"requirements-$extra.txt.new"
  mv "requirements-$extra.txt.new" "requirements-$extra.txt"
done
mv requirements.txt.new requirements.txt
