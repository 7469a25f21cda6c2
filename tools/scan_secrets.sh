#!/usr/bin/env bash
# Scan the files under version control for secrets. A file is scanned again only after it has changed, because a scan of
# all files takes 40 CPU-seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

last=.cache/secrets-scanned # its time is the start of the last scan that found nothing
mkdir -p .cache
touch "$last.new"
# The baseline and the scanner's version decide what is found: after a change of these, scan everything.
if [[ .secrets.baseline -nt $last || requirements.txt -nt $last ]]; then rm -f "$last"; fi

changed_files() { # reads and prints paths that end with NUL
  local path
  while IFS= read -r -d '' path; do
    if [[ -f $path && $path -nt $last ]]; then printf '%s\0' "$path"; fi
  done
}

git ls-files -z --cached --others --exclude-standard | changed_files |
  xargs -0 -r -n 100 -P "$(nproc)" .venv/bin/detect-secrets-hook --no-verify --baseline .secrets.baseline
mv "$last.new" "$last"
