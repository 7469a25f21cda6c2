#!/usr/bin/env bash
# Make .venv: find a Python that fits this machine, then install the packages locked in requirements.txt.
#
#   tools/setup.sh            make .venv; do nothing if it is up to date
#   tools/setup.sh --choose   print the interpreter that it would use, and the reason
#   tools/setup.sh --uv       print the path of uv; install it under .cache/ if the machine has none
#
# PYTHON=/path/to/python overrides the choice. Nothing outside this folder is changed except uv's own cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HERE=$PWD
PRIVATE=$HERE/.cache/uv
STAMP=$HERE/.venv/.set-up
LOCK=requirements.txt
CURRENT_GLIBC=2.39 # required by ml-metadata and tensorflow-data-validation of the current line
OLDEST_UV=0.5.0

die() {
  echo "set-up: $*" >&2
  exit 1
}

at_least() { # at_least 2.41 2.39: is the first version the second or newer?
  [[ $(printf '%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}

# --- the machine ------------------------------------------------------------------------------------------------

check_machine() { # sets GLIBC; TFX has wheels for Linux with glibc on x86-64 only
  local kernel machine
  kernel=$(uname -s) machine=$(uname -m)
  GLIBC=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2) || GLIBC=
  [[ $kernel == Linux && $machine == x86_64 ]] ||
    die "TFX is built for Linux on x86-64, and this is $kernel on $machine: use such a machine, or a container (docker run --platform linux/amd64 -it debian:13)."
  [[ -n $GLIBC ]] ||
    die "TFX is built for Linux with glibc, and this one has another C library (musl, as on Alpine?): use Debian, Ubuntu or a container of theirs (docker run -it debian:13)."
}

check_compiler() {
  command -v g++ >/dev/null ||
    die "g++ is missing, and one small package (pyfarmhash) has to be compiled: apt-get install g++, then try again."
}

# --- the interpreter --------------------------------------------------------------------------------------------

# Run by every candidate. It prints the version, whether it is plain CPython, whether its C headers are installed, and the
# real path (that of a shim or of a virtual environment's python is resolved).
PROBE='
import os, platform, sys, sysconfig
plain = platform.python_implementation() == "CPython" and sys.maxsize > 2**32 and not sysconfig.get_config_var("Py_GIL_DISABLED")
headers = os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
print("%d.%d" % sys.version_info[:2], "plain" if plain else "odd", "headers" if headers else "bare", os.path.realpath(sys.executable))
'

probe() { # "3.10 plain headers /real/path", or nothing if the candidate does not run
  timeout 10 "$1" -I -c "$PROBE" 2>/dev/null </dev/null || true
}

candidates() { # possible Pythons: on PATH, pyenv's versions, those that uv has downloaded
  local dir name dirs
  IFS=: read -ra dirs <<<"$PATH"
  for name in python3.13 python3.12 python3.11 python3.10 python3 python; do
    for dir in "${dirs[@]}"; do
      [[ -x $dir/$name && ! -d $dir/$name && $dir != "$HERE/.venv/bin" ]] && printf '%s\n' "$dir/$name"
    done
  done
  printf '%s\n' "${PYENV_ROOT:-${HOME-}/.pyenv}"/versions/*/bin/python3.1[0-3] \
    "${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-${HOME-}/.local/share}/uv/python}"/*/bin/python3.1[0-3] \
    "$PRIVATE"/python/*/bin/python3.1[0-3] | sort -rV
}

survey() { # sets FOUND: the probed candidates, each real interpreter once
  local path line
  declare -A seen=()
  FOUND=()
  while read -r path; do
    [[ -x $path ]] || continue
    line=$(probe "$path")
    [[ -n $line && -z ${seen[$line]-} ]] || continue
    seen[$line]=yes
    FOUND+=("$line")
  done < <(candidates)
}

fitting_versions() { # best first; a marker in the lock cannot test glibc, so the Python version decides the line
  if at_least "$GLIBC" "$CURRENT_GLIBC"; then echo 3.13 3.12 3.11 3.10; else echo 3.10; fi
}

name_line() { # name_line 3.12
  if [[ $1 == 3.10 ]]; then echo "older line (tfx 1.16)"; else echo "current line (tfx 1.21)"; fi
}

choose() { # sets CHOSEN (empty if no installed interpreter fits) and WHY
  local wanted line version kind headers path
  CHOSEN='' WHY='' BARE=''
  if [[ -n ${PYTHON-} ]]; then
    choose_given
    return
  fi
  survey
  for wanted in $(fitting_versions); do
    for line in ${FOUND[@]+"${FOUND[@]}"}; do
      read -r version kind headers path <<<"$line"
      [[ $version == "$wanted" && $kind == plain ]] || continue
      if [[ $headers == bare ]]; then
        BARE=${BARE:-"Python $version at $path lacks its C headers (apt-get install python3-dev)"}
        continue
      fi
      CHOSEN=$path
      WHY="$(name_line "$version"): Python $version, $(why_line)${BARE:+; $BARE}"
      return
    done
  done
}

choose_given() { # PYTHON=… make setup
  local version kind headers path given
  given=$(command -v "$PYTHON" || true)
  read -r version kind headers path <<<"$(probe "${given:-$PYTHON}")" || true
  [[ -n $path ]] || die "PYTHON=$PYTHON does not run: give the path of a Python ($(fitting_versions) fit here), or leave PYTHON unset."
  [[ " $(fitting_versions) " == *" $version "* && $kind == plain ]] ||
    die "PYTHON=$PYTHON is Python $version, and with glibc $GLIBC this machine takes plain CPython $(fitting_versions): give one of these, or leave PYTHON unset."
  [[ $headers == headers ]] ||
    die "PYTHON=$PYTHON lacks its C headers, and one small package (pyfarmhash) has to be compiled: apt-get install python3-dev, then try again."
  CHOSEN=$path
  WHY="$(name_line "$version"): Python $version, as PYTHON=$PYTHON asks"
}

why_line() {
  if at_least "$GLIBC" "$CURRENT_GLIBC"; then
    echo "the best one at hand for glibc $GLIBC"
  else
    echo "since the current line needs glibc $CURRENT_GLIBC and this machine has $GLIBC"
  fi
}

fetch_python() { # sets CHOSEN and WHY by downloading a Python with uv
  local version path uv
  read -r version _ <<<"$(fitting_versions)"
  uv=$(find_uv) || die "$(nothing_fits)"
  echo "set-up: no Python at hand fits; uv fetches Python $version into .cache/uv/python" >&2
  path=$(
    export UV_PYTHON_INSTALL_DIR=$PRIVATE/python UV_PYTHON_INSTALL_BIN=0
    "$uv" python install "$version" >&2 && "$uv" python find --managed-python "$version"
  ) || die "$(nothing_fits)"
  CHOSEN=$(realpath "$path")
  WHY="$(name_line "$version"): Python $version, fetched by uv"
}

nothing_fits() {
  local best
  read -r best _ <<<"$(fitting_versions)"
  if [[ -n $BARE ]]; then
    echo "$BARE, and one small package (pyfarmhash) has to be compiled: install them, then try again."
  else
    echo "no fitting Python was found (glibc $GLIBC takes $(fitting_versions)), nor could uv fetch one: install Python $best (pyenv install $best, or apt-get install g++ python3-dev python3-venv where the system's Python is $best), then try again."
  fi
}

# --- uv ---------------------------------------------------------------------------------------------------------

find_uv() { # prints the path of the user's uv, or of a private one of the locked version, checked by its hash
  local uv version python
  for uv in "$(command -v uv || true)" "$PRIVATE/venv/bin/uv"; do
    version=$("$uv" --version 2>/dev/null | cut -d ' ' -f 2) || continue
    if at_least "$version" "$OLDEST_UV"; then
      echo "$uv"
      return
    fi
  done
  python=$(python_for_uv) || return 1
  rm -rf "$PRIVATE/venv"
  mkdir -p "$PRIVATE"
  awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' "$LOCK" >"$PRIVATE/uv.txt"
  "$python" -m venv "$PRIVATE/venv" >&2 ||
    die "$python cannot make a virtual environment: apt-get install python3-venv, then try again."
  "$PRIVATE/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$PRIVATE/uv.txt" >&2 ||
    die "uv could not be installed (pip's message is above): check the network, or install uv yourself, then try again."
  echo "$PRIVATE/venv/bin/uv"
}

python_for_uv() { # pip can install uv with any Python from 3.8
  local line version path
  if [[ -n ${CHOSEN-} ]]; then
    echo "$CHOSEN"
    return
  fi
  for line in ${FOUND[@]+"${FOUND[@]}"}; do
    read -r version _ _ path <<<"$line"
    if at_least "$version" 3.8; then
      echo "$path"
      return
    fi
  done
  return 1
}

# --- .venv ------------------------------------------------------------------------------------------------------

stamp() { # what .venv was made from: the lock, the interpreter, and the folder (its scripts contain absolute paths)
  sha256sum <"$LOCK"
  printf '%s\n' "$1" "$HERE"
}

is_set_up() {
  local python given
  python=$(sed -n 2p "$STAMP" 2>/dev/null) || return 1
  if [[ -n ${PYTHON-} ]]; then
    given=$(command -v "$PYTHON") && [[ $(realpath "$given") == "$python" ]] || return 1
  fi
  [[ $(<"$STAMP") == "$(stamp "$python")" ]] && .venv/bin/python -I -S -c '' 2>/dev/null && is_linked
}

made_with() { # is there a complete .venv of this interpreter, so that only its packages have to be updated?
  [[ $(sed -n '2,3p' "$STAMP" 2>/dev/null) == "$1"$'\n'"$HERE" ]] && .venv/bin/python -I -S -c '' 2>/dev/null
}

make_venv() {
  local uv quiet=(--quiet)
  check_machine
  check_compiler
  choose
  [[ -n $CHOSEN ]] || fetch_python
  uv=$(find_uv) || exit 1
  if [[ -t 2 ]]; then quiet=(); fi
  echo "set-up: $WHY" >&2
  if ! made_with "$CHOSEN"; then
    rm -rf .venv
    "$uv" venv --quiet --python "$CHOSEN" .venv
  fi
  echo "set-up: installing the locked packages into .venv (3 GB on disk; a minute or two the first time)" >&2
  # Without the stamp .venv counts as incomplete: after a killed run the next one starts again.
  rm -f "$STAMP"
  "$uv" pip sync ${quiet[@]+"${quiet[@]}"} --require-hashes --python .venv/bin/python "$LOCK" ||
    die "the packages could not be installed; uv's message is above. Nothing else was changed: fix the cause, then try again."
  import_once
  link_package
  stamp "$CHOSEN" >"$STAMP.new"
  mv "$STAMP.new" "$STAMP"
  echo "set-up: .venv is ready" >&2
}

import_once() {
  compgen -G ".venv/lib/python3*/site-packages/tfx/version.py" >/dev/null || return 0
  # Bytecode files halve the start of every run; write them even if PYTHONDONTWRITEBYTECODE is set.
  echo "set-up: importing TensorFlow and TFX once (half a minute), so that runs start quickly" >&2
  env -u PYTHONDONTWRITEBYTECODE TF_CPP_MIN_LOG_LEVEL=3 TF_USE_LEGACY_KERAS=1 CUDA_VISIBLE_DEVICES=-1 \
    .venv/bin/python -W ignore -c 'import pipeline.authoring.build, pipeline.orchestration.node, pipeline.inspection.run_summary' >/dev/null 2>.venv/import.log ||
    die "the installed packages cannot be imported; see .venv/import.log. Remove .venv and try again."
}

# Only this package can be imported from any folder: the names `pipeline` and `components` may be names of the user's own.
link_package() {
  local folder
  for folder in .venv/lib/python3*/site-packages; do ln -sfn "$HERE/tfx_pipeline" "$folder/tfx_pipeline"; done
}

is_linked() {
  compgen -G ".venv/lib/python3*/site-packages/tfx_pipeline" >/dev/null
}

name_indexes() { # uv itself reads neither pip's variables nor the system's certificates
  [[ -z ${PIP_INDEX_URL-} ]] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX-$PIP_INDEX_URL}
  [[ -z ${PIP_EXTRA_INDEX_URL-} ]] || export UV_INDEX=${UV_INDEX-$PIP_EXTRA_INDEX_URL}
  local bundle=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
  if [[ -z ${SSL_CERT_FILE-} && -f $bundle ]]; then export SSL_CERT_FILE=$bundle; fi
  export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT-180}
}

case ${1-} in
  --choose)
    check_machine
    choose
    if [[ -z $CHOSEN ]]; then
      python_for_uv >/dev/null || command -v uv >/dev/null || die "$(nothing_fits)"
      echo "none at hand fits${BARE:+: $BARE}; uv would fetch Python $(fitting_versions | cut -d ' ' -f 1)"
      exit
    fi
    printf '%s\n' "$CHOSEN" "$WHY"
    ;;
  --uv)
    check_machine
    choose
    name_indexes
    find_uv || die "$(nothing_fits)"
    ;;
  '')
    if is_set_up; then exit; fi
    mkdir -p .cache
    exec 9>.cache/set-up.lock
    flock 9 # two set-ups at once would write into the same .venv
    if is_set_up; then exit; fi
    name_indexes
    make_venv
    ;;
  *) die "unknown option $1: expected none, --choose or --uv." ;;
esac
