#!/usr/bin/env bash
# Makes .cache/engines: Flink, Spark, Beam's job server for each as one jar, Prism, boot (Beam's program that starts a
# worker in a container), and the schema of the Flink operator's resources, for make test-engines; and .cache/dataflow,
# Google's descriptions of its APIs.
#
# Flink and Spark come from PyPI (tools/engines.txt), the job servers' parts and the schema from Maven Central
# (tools/engines/*.sha256), Prism and boot from Go's module proxy (tools/engines/prism/go.sum). Needs java 17, mvn and
# go. Does nothing if all is there.
#
#   tools/engines.sh          makes what is missing
#   tools/engines.sh --lock   writes the checksums of what comes from Maven Central again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HERE=$PWD/.cache/engines
PARTS=tools/engines
OPERATOR=org.apache.flink:flink-kubernetes-operator-api:1.10.0
declare -A DRIVERS=([flink-1.19]=flink.FlinkJobServerDriver [spark-3]=spark.SparkJobServerDriver)

maven() { # maven ENGINE GOAL...
  mvn --quiet --batch-mode --file "$PARTS/pom.xml" -Dengine="$1" -Ddriver="${DRIVERS[$1]}" -Dtarget="$scratch/target" "${@:2}"
}

parts() { # parts ENGINE: the checksums of the jars that the job server is made of
  maven "$1" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$scratch/$1" >&2
  (cd "$scratch/$1" && sha256sum -- *.jar)
}

operator() { # the checksum of the operator's jar, which is left in $scratch/operator
  maven flink-1.19 dependency:copy -Dartifact="$OPERATOR" -DoutputDirectory="$scratch/operator" >&2
  (cd "$scratch/operator" && sha256sum -- *.jar)
}

check() { # check NAME: compares the checksums on stdin with those of NAME
  diff - "$PARTS/$1.sha256" || {
    echo "engines: what comes from Maven Central for $1 is not what $PARTS/$1.sha256 lists" >&2
    exit 1
  }
}

for program in java mvn go; do
  command -v "$program" >/dev/null || {
    echo "engines: $program is missing: install a JDK 17, Maven and Go" >&2
    exit 1
  }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ ${1-} == --lock ]]; then
  for engine in "${!DRIVERS[@]}"; do
    parts "$engine" >"$PARTS/$engine.sha256"
  done
  operator >"$PARTS/flink-operator.sha256"
  exit
fi

tools/environment.sh engines
tools/environment.sh dataflow
for engine in "${!DRIVERS[@]}"; do
  jar=$HERE/job-server-$engine.jar
  if [[ ! -f $jar || $PARTS/pom.xml -nt $jar ]]; then
    parts "$engine" | check "$engine"
    maven "$engine" package
    mv "$scratch/target/job-server-$engine.jar" "$jar"
    rm -rf "$scratch/target"
  fi
done
if [[ ! -f $HERE/flink-operator.yml || $PARTS/flink-operator.sha256 -nt $HERE/flink-operator.yml ]]; then
  operator | check flink-operator
  .venv/bin/python -m zipfile --extract "$scratch"/operator/*.jar "$scratch/operator"
  mv "$scratch/operator/META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml" "$HERE/flink-operator.yml"
fi
for program in prism:go/cmd/prism boot:python/container; do
  file=$HERE/bin/${program%:*}
  if [[ ! -f $file || $PARTS/prism/go.sum -nt $file ]]; then
    # Without C, because boot also runs where this machine's libraries are not.
    CGO_ENABLED=0 go build -C "$PARTS/prism" -trimpath -o "$file" "github.com/apache/beam/sdks/v2/${program#*:}"
  fi
done
