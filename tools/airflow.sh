#!/usr/bin/env bash
# Makes .cache/airflow, an environment of Airflow's own, from tools/airflow.txt: the tests run the DAG that we write in it.
#
#   tools/airflow.sh          makes it, or does nothing where it is already as it should be
#   tools/airflow.sh --lock   resolves tools/airflow.txt anew
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=3.3.2
HERE=$PWD/.cache/airflow
LOCK=tools/airflow.txt

uv=$(tools/setup.sh --uv)
if [[ ${1-} == --lock ]]; then
  {
    echo "# Airflow's own environment, for the tests of the DAG that we write: made by \`tools/airflow.sh --lock\`, don't edit it."
    "$uv" pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --no-header --no-emit-index-url - <<<"apache-airflow==$VERSION"
  } >"$LOCK.new"
  mv "$LOCK.new" "$LOCK"
  exit
fi

stamp=$(sha256sum <"$LOCK"; echo "$HERE")
if [[ ! -f $HERE/.set-up || $(<"$HERE/.set-up") != "$stamp" ]]; then
  rm -rf "$HERE"
  "$uv" venv --quiet --python .venv/bin/python "$HERE"
  "$uv" pip sync --quiet --python "$HERE/bin/python" --require-hashes "$LOCK"
  echo "$stamp" >"$HERE/.set-up"
fi
