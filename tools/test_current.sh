#!/usr/bin/env bash
# Runs the tests marked both_lines on the current release line: with .venv where that is on it, else in a Debian 13 root.
#
#   tools/test_current.sh [LEVELS]   runs the tests of these levels: test, rest, or by default test,rest
#   FOLDERS="tests/e2e" tools/test_current.sh  runs only the tests in these folders
#   tools/test_current.sh --prepare  makes the Debian 13 root and its .venv where they are needed, and runs no test
#
# The root is .cache/trixie; it is made once (about a minute) and reused. All mounts are in a mount namespace that ends
# with this script, so nothing stays mounted. The tests have no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD/.cache/trixie
PACKAGES=ca-certificates,g++,git,iproute2,make,mariadb-server,postgresql,python3,python3-dev,python3-venv

# Only files that have such tests: pytest imports all that it is given, in each worker.
LEVELS=test,rest
if (($#)) && [[ ${!#} != --* ]]; then LEVELS=${!#}; fi
TESTS='ARGS=--levels '$LEVELS' -m "both_lines and not slow" $$(grep -rl both_lines '${FOLDERS:-tests}' --include="test_*.py")'

die() {
  echo "test-current: $*" >&2
  exit 1
}

check_machine() {
  [[ $(id -u) == 0 ]] ||
    die "this machine is on the older release line, and a Debian 13 root can be made and entered by root only: sudo make test-current."
  if ! command -v debootstrap >/dev/null; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap; } >&2 ||
      die "debootstrap is missing and could not be installed: install it (apt-get install debootstrap), then try again."
  fi
  unshare --mount --pid --net --fork true ||
    die "this machine allows no private namespaces (a container without CAP_SYS_ADMIN?): start it with --privileged, or run make test on Debian 13."
}

make_root() { # an incomplete root has no mark and is made again
  if [[ -f $ROOT/.made && $(<"$ROOT/.made") == "$PACKAGES" ]]; then return; fi
  echo "test-current: making a Debian 13 root in .cache/trixie (about a minute, once)" >&2
  rm -rf "$ROOT"
  mkdir -p "$ROOT"
  debootstrap --variant=minbase --include="$PACKAGES" trixie "$ROOT" >"$ROOT.log" 2>&1 || {
    tail -n 5 "$ROOT.log" >&2
    die "the Debian 13 root could not be made (the last lines are above, all of them in .cache/trixie.log): check the network and the free disk, then try again."
  }
  echo "$PACKAGES" >"$ROOT/.made"
}

mount_root() {
  local node
  mount -t proc proc "$ROOT/proc"
  mount -t tmpfs -o mode=755 dev "$ROOT/dev"
  for node in null zero full random urandom tty; do
    touch "$ROOT/dev/$node"
    mount --bind "/dev/$node" "$ROOT/dev/$node"
  done
  mkdir "$ROOT/dev/pts" "$ROOT/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$ROOT/dev/pts"
  mount -t tmpfs -o mode=1777 shm "$ROOT/dev/shm"
  ln -s pts/ptmx "$ROOT/dev/ptmx"
  ln -s /proc/self/fd "$ROOT/dev/fd"
}

copy_network_settings() {
  local bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
  cp --dereference --remove-destination /etc/resolv.conf /etc/hosts "$ROOT/etc/"
  if [[ -f $bundle ]]; then cp --dereference "$bundle" "$ROOT/etc/ssl/certs/ca-certificates.crt"; fi
}

copy_checkout() { # the files git would commit; the root's own .venv and uv stay
  mkdir -p "$ROOT/project"
  find "$ROOT/project" -mindepth 1 -maxdepth 1 ! -name .venv ! -name .cache -exec rm -rf {} +
  find "$ROOT/tmp" -mindepth 1 -delete
  # A file that was deleted and not yet committed is still listed; tar skips it.
  git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- --ignore-failed-read --warning=no-failed-read |
    tar --extract --no-same-owner --directory "$ROOT/project"
}

inside() { # inside COMMAND…: in the root, with only the network settings of this environment
  local name kept=()
  for name in $(compgen -e); do
    case $name in
      CI | TERM | COLUMNS | PIP_INDEX_URL | PIP_EXTRA_INDEX_URL | PIP_TRUSTED_HOST | PIP_DEFAULT_TIMEOUT | UV_INDEX* | UV_DEFAULT_INDEX | *_proxy | *_PROXY)
        kept+=("$name=${!name}")
        ;;
    esac
  done
  chroot "$ROOT" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${kept[@]+"${kept[@]}"} \
    bash -c 'cd /project && exec "$@"' bash "$@"
}

if [[ ${1-} == --in-namespace ]]; then
  trap 'exit 130' INT TERM
  make_root
  mount_root
  copy_network_settings
  copy_checkout
  inside make --no-print-directory data
  if [[ ${2-} == --prepare ]]; then exit; fi
  export ROOT TESTS
  export -f inside
  # shellcheck disable=SC2016  # for the inner shell
  unshare --net bash -c 'inside ip link set lo up && inside make --no-print-directory pytest "$TESTS"'
elif .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  if [[ ${1-} == --prepare ]]; then exit; fi
  exec make --no-print-directory pytest "$TESTS"
else
  check_machine
  exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc tools/test_current.sh --in-namespace "$@"
fi
