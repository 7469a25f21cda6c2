#!/usr/bin/env bash
# Makes .cache/stores: servers of object stores, for their tests.
#
# SeaweedFS and fake-gcs-server are built from Go's module proxy (tools/stores/*/go.sum), in several minutes. Azurite
# comes from npm (tools/stores/package-lock.json). Needs go, node and npm. Does nothing if all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HERE=$PWD/.cache/stores
PARTS=tools/stores

for program in go node npm; do
  command -v "$program" >/dev/null || {
    echo "stores: $program is missing: install Go, Node.js and npm" >&2
    exit 1
  }
done
mkdir -p "$HERE/bin"
for package in github.com/fsouza/fake-gcs-server github.com/seaweedfs/seaweedfs/weed; do
  name=$(cut -d/ -f3 <<<"$package") server=$HERE/bin/${package##*/}
  if [[ ! -f $server || $PARTS/$name/go.sum -nt $server ]]; then
    CGO_ENABLED=0 go build -C "$PARTS/$name" -trimpath -ldflags '-s -w' -o "$server" "$package"
  fi
done
if [[ ! -f $HERE/node_modules/.package-lock.json || $PARTS/package-lock.json -nt $HERE/node_modules/.package-lock.json ]]; then
  cp "$PARTS/package.json" "$PARTS/package-lock.json" "$HERE/"
  npm ci --prefix "$HERE" --silent --ignore-scripts --no-audit --no-fund
fi
tools/environment.sh moto
tools/environment.sh s3
tools/environment.sh azure
