#!/usr/bin/env bash
# Makes .cache/model_server/tensorflow_model_server: TensorFlow Serving's model server, for tests of the real program.
#
# No package registry has the program, and its own build needs Bazel. Here g++ compiles its unchanged sources against
# TensorFlow's libraries in .venv, in about three minutes on two cores. tools/model_server/include replaces what
# TensorFlow's wheel lacks. It differs from the published image in this: gRPC, libevent, RapidJSON and RE2 are Debian's;
# TensorFlow Lite, the profiler, and the operations of TensorFlow Text and TensorFlow Decision Forests are left out.
#
# Needs git, the Debian packages below, and access to GitHub; TENSORFLOW_SERVING_SOURCE names another repository or a
# folder. Does nothing if the program is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HERE=$PWD/.cache/model_server
PARTS=$PWD/tools/model_server
SOURCE=${TENSORFLOW_SERVING_SOURCE:-https://github.com/tensorflow/serving}
TAG=2.16.1
COMMIT=0d726954f36a2b6c6bfb60a4caec311f2b3e3101
TENSORFLOW=2.16.2
PACKAGES=(g++ git make pkgconf libevent-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc)
PACKAGES+=(rapidjson-dev)

die() {
  echo "model_server: $*" >&2
  exit 1
}

server=$HERE/tensorflow_model_server
if [[ -f $server && -z $(find "$PARTS" tools/model_server.sh -newer "$server" -type f) ]]; then
  exit
fi
missing=()
for package in "${PACKAGES[@]}"; do
  status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null) || true
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} == 0 ]] || die "Debian packages are missing: apt-get install --no-install-recommends ${missing[*]}"
read -r package version < <(.venv/bin/python -c '
import importlib.metadata as metadata
print(metadata.distribution("tensorflow").locate_file("tensorflow"), metadata.version("tensorflow"))')
[[ $version == "$TENSORFLOW" ]] ||
  die "expected TensorFlow $TENSORFLOW in .venv, received $version: use the older release line"

checkout=$HERE/serving
if [[ $(git -C "$checkout" rev-parse HEAD 2>/dev/null) != "$COMMIT" ]]; then
  rm -rf "$checkout"
  git init --quiet "$checkout"
  # Files of tests are left out: models, some of them large.
  git -C "$checkout" sparse-checkout set --no-cone /tensorflow_serving '!testdata'
  git -C "$checkout" remote add origin "$SOURCE"
  git -C "$checkout" fetch --quiet --depth 1 --filter=blob:none origin tag "$TAG"
  received=$(git -C "$checkout" rev-parse 'FETCH_HEAD^{commit}')
  [[ $received == "$COMMIT" ]] || die "expected $SOURCE to have $COMMIT as $TAG, received $received"
  git -C "$checkout" -c advice.detachedHead=false checkout --quiet FETCH_HEAD
fi

build=$HERE/build
mkdir -p "$build/libevent"
# The sources include libevent's headers by their place in its repository.
ln -sfn /usr/include "$build/libevent/include"
export TF_CPP_MIN_LOG_LEVEL=3
.venv/bin/python -W ignore "$PARTS/sources.py" "$checkout" tensorflow_serving/model_servers/main.cc \
  "$build/tensorflow.desc" >"$build/sources"
protoc=(protoc --descriptor_set_in "$build/tensorflow.desc" -I "$checkout" -I /usr/include)
mapfile -t messages < <(grep 'proto$' "$build/sources")
mapfile -t services < <(grep '_service\.proto$' "$build/sources")
"${protoc[@]}" --cpp_out "$build" "${messages[@]}"
"${protoc[@]}" --plugin protoc-gen-grpc="$(command -v grpc_cpp_plugin)" --grpc_out "$build" "${services[@]}"
make --silent --directory "$PARTS" --jobs "$(nproc)" BUILD="$build" CHECKOUT="$checkout" PACKAGE="$package"
mv "$build/tensorflow_model_server" "$server"
