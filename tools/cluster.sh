#!/usr/bin/env bash
# Makes .cache/cluster: a Kubernetes for make test-cluster, and what runs on it.
#
#   tools/cluster.sh            everything
#   tools/cluster.sh programs   Kubernetes itself and the definitions of resources, which validate manifests
#
# Kubernetes, CoreDNS and JobSet's controller are built from Go's module proxy (tools/cluster/go.sum). The controllers of
# Kubeflow's training operator, Kubeflow Trainer and Kueue need other versions of the same libraries, so each is built by
# a module of its own, for example tools/cluster/trainer/go.sum. The images stand on a Debian 13 made by debootstrap.
# Needs go; everything else needs Debian and root. Does nothing if all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HERE=$PWD/.cache/cluster
PARTS=tools/cluster
PACKAGES=(buildah containerd containernetworking-plugins debootstrap iptables conntrack runc)
# Modules that bring definitions of resources alone: no program is built from them.
ISTIO=istio.io/api@v1.31.4
KSERVE=github.com/kserve/kserve@v0.15.2

die() {
  echo "cluster: $*" >&2
  exit 1
}

build() { # build MODULE PACKAGE…, with the linker's options in LINK
  CGO_ENABLED=0 go build -C "$1" -trimpath -ldflags "-s -w ${LINK-}" -o "$HERE/bin/" "${@:2}"
}

folder_of() { # folder_of MODULE NAME[@VERSION]
  if [[ $2 == *@* ]]; then
    go mod download -json "$2" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'
  else
    go list -C "$1" -m -f '{{.Dir}}' "$2"
  fi
}

programs() { # does nothing if their sources are those of the last time: Go's own cache of them is 7 GB
  local sources version
  sources=$(find "$PARTS" -name 'go.*' -o -name '*.go' | sort | xargs sha256sum)
  [[ -f $HERE/bin/.sources && $(<"$HERE/bin/.sources") == "$sources" ]] && return
  # Kueue does not start if it cannot parse the version of the API server.
  version=$(go list -C "$PARTS" -m -f '{{.Version}}' k8s.io/kubernetes)
  LINK="-X k8s.io/component-base/version.gitVersion=$version" build "$PARTS" ./kubernetes
  build "$PARTS" ./coredns sigs.k8s.io/jobset
  build "$PARTS/training-operator" github.com/kubeflow/training-operator/cmd/training-operator.v1
  build "$PARTS/trainer" github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager
  build "$PARTS/kueue" sigs.k8s.io/kueue/cmd/kueue
  local part
  for part in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -sf kubernetes "$HERE/bin/$part"
  done
  echo "$sources" >"$HERE/bin/.sources"
}

definitions() {
  if (cd "$HERE/manifests" && sha256sum --check --quiet -) <"$PARTS/manifests.sha256" &>/dev/null; then return; fi
  local jobset operator istio kserve trainer kueue copy out=$HERE/manifests
  jobset=$(folder_of "$PARTS" sigs.k8s.io/jobset)
  operator=$(folder_of "$PARTS/training-operator" github.com/kubeflow/training-operator)
  istio=$(folder_of . "$ISTIO")
  kserve=$(folder_of . "$KSERVE")
  trainer=$(folder_of "$PARTS/trainer" github.com/kubeflow/trainer/v2)
  kueue=$(folder_of "$PARTS/kueue" sigs.k8s.io/kueue)
  mkdir -p "$out"
  "$HERE/bin/kubectl" kustomize "$jobset/config/default" >"$out/jobset.yaml"
  "$HERE/bin/kubectl" kustomize "$operator/manifests/overlays/standalone" >"$out/training-operator.yaml"
  "$HERE/bin/kubectl" kustomize "$kserve/config/crd/full" >"$out/kserve.yaml"
  cp --no-preserve=mode "$istio/kubernetes/customresourcedefinitions.gen.yaml" "$out/istio.yaml"
  "$HERE/bin/kubectl" kustomize "$kueue/config/default" >"$out/kueue.yaml"
  # Kubeflow Trainer's own manifests download another JobSet.
  copy=$(mktemp -d)
  cp -r --no-preserve=mode "$trainer/manifests/." "$copy"
  sed -i '/third-party/d' "$copy/overlays/manager/kustomization.yaml"
  "$HERE/bin/kubectl" kustomize "$copy/overlays/manager" >"$out/trainer.yaml"
  rm -r "$copy"
  (cd "$out" && sha256sum --check --quiet -) <"$PARTS/manifests.sha256" ||
    die "the definitions in .cache/cluster/manifests are not those of $PARTS/manifests.sha256"
}

base() { # a Debian 13 with Python, the certificates of this machine and its Python package index
  local root=$HERE/base bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
  [[ -f $root/.made ]] && return
  rm -rf "$root"
  debootstrap --variant=minbase --include=ca-certificates,python3 trixie "$root" >"$HERE/base.log" 2>&1 || {
    tail -n 5 "$HERE/base.log" >&2
    die "the Debian 13 of the images could not be made: check the network and the free disk, then try again"
  }
  if [[ -f $bundle ]]; then cp --dereference "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"; fi
  if [[ -f /etc/pip.conf ]]; then cp /etc/pip.conf "$root/etc/"; fi
  touch "$root/.made"
}

image() { # image NAME CONTAINERFILE CONTEXT [OPTION…]
  buildah "${STORE[@]}" bud --quiet --layers --isolation chroot --network host --ulimit nofile=20000:20000 --pull-never \
    --tag "localhost/$1" --file "$2" "${@:4}" "$3" >/dev/null
}

images() {
  STORE=(--root "$HERE/store" --runroot "$HERE/store-run" --storage-driver overlay)
  base
  mkdir -p "$HERE/boot"
  [[ -x $HERE/boot/boot ]] || CGO_ENABLED=0 go build -C tools/engines/prism -trimpath -ldflags '-s -w' -o "$HERE/boot/boot" \
    github.com/apache/beam/sdks/v2/python/container
  image base:1 - "$HERE/base" <<<$'FROM scratch\nCOPY . /\nCMD ["sleep", "infinity"]'
  image beam:1 - "$HERE/boot" <<<$'FROM scratch\nCOPY boot /opt/apache/beam/boot'
  image controllers:1 - "$HERE/bin" <<<$'FROM scratch\nCOPY jobset training-operator.v1 trainer-controller-manager kueue /'
  image pipeline:1 deploy/docker/Dockerfile . --ignorefile deploy/docker/Dockerfile.dockerignore \
    --build-arg BASE=localhost/base:1 --build-arg BEAM=localhost/beam:1
}

container_runtime() { # its settings, for the tests as well; the root of a machine in a machine may set no limits
  cat >"$HERE/containerd.toml" <<EOF
version = 2
root = "$HERE/containerd"
oom_score = 0
[plugins."io.containerd.internal.v1.opt"]
  path = "$HERE/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/base:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$PWD/$PARTS/network"
EOF
}

import_images() { # from the store of buildah into that of containerd, which keeps them for the next start
  local name id
  state=$(mktemp -d)
  containerd --config "$HERE/containerd.toml" --state "$state" --address "$state/socket" &>"$HERE/containerd.log" &
  trap 'kill %?containerd; wait; rm -rf "$state"' EXIT
  timeout 60 sh -c "until ctr --address $state/socket version >/dev/null 2>&1; do sleep 0.1; done"
  mkdir -p "$HERE/imported"
  for name in base controllers pipeline; do
    id=$(buildah "${STORE[@]}" inspect --type image --format '{{.FromImageID}}' "localhost/$name:1")
    if [[ ! -f $HERE/imported/$name || $(<"$HERE/imported/$name") != "$id" ]]; then
      buildah "${STORE[@]}" push --quiet "localhost/$name:1" "docker-archive:/dev/stdout:localhost/$name:1" |
        ctr --address "$state/socket" --namespace k8s.io images import --snapshotter overlayfs - >&2
      echo "$id" >"$HERE/imported/$name"
    fi
  done
}

command -v go >/dev/null || die "go is missing: install Go 1.26 or newer"
mkdir -p "$HERE/bin"
programs
definitions
[[ ${1-} == programs ]] && exit
[[ $(id -u) == 0 ]] || die "images are made, and containers are run, by root only: sudo make test-cluster"
dpkg --status "${PACKAGES[@]}" >/dev/null 2>&1 ||
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" </dev/null; } >&2
images
container_runtime
import_images
