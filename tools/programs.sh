#!/usr/bin/env bash
# Installs the programs of tools/programs.txt that this machine lacks.
#
#   tools/programs.sh            Debian packages (apt-get; with sudo unless root), then environments below .cache/
#   tools/programs.sh packages   Debian packages alone; needs no .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# == 0 || $* == packages ]] || {
  echo "programs: expected no argument or packages, received '$*'" >&2
  exit 2
}
PATH=$PATH:/usr/sbin:$(printf '%s:' /usr/lib/postgresql/*/bin)
packages=() environments=()
while read -r names source _; do
  if [[ $source == environment:* ]]; then
    environments+=("${source#*:}")
  elif [[ -z $(IFS='|' && type -P $names) ]]; then
    packages+=("$source")
  fi
done < <(grep -v '^#' tools/programs.txt)

if [[ ${#packages[@]} -gt 0 ]]; then
  command -v apt-get >/dev/null || {
    echo "programs: missing: ${packages[*]}. Install these packages (this system has no apt-get)." >&2
    exit 1
  }
  as_root=(env DEBIAN_FRONTEND=noninteractive)
  [[ $(id -u) == 0 ]] || as_root=(sudo "${as_root[@]}")
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null
fi
if [[ ${1-} != packages ]]; then
  for name in "${environments[@]}"; do
    tools/environment.sh "$name"
  done
fi
