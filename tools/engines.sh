#!/usr/bin/env bash
# Makes .cache/engines: Flink, Spark, Beam's job server for each as one jar, and Prism, for make test-engines.
#
# Flink and Spark come from PyPI (tools/engines.txt), the job servers' parts from Maven Central (tools/engines/*.sha256),
# Prism from Go's module proxy (tools/engines/prism/go.sum). Needs java 17, mvn and go. Does nothing if all is there.
#
#   tools/engines.sh          makes what is missing
#   tools/engines.sh --lock   writes the checksums of the job servers' parts again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HERE=$PWD/.cache/engines
PARTS=tools/engines
declare -A DRIVERS=([flink-1.19]=flink.FlinkJobServerDriver [spark-3]=spark.SparkJobServerDriver)

maven() { # maven ENGINE GOAL...
  mvn --quiet --batch-mode --file "$PARTS/pom.xml" -Dengine="$1" -Ddriver="${DRIVERS[$1]}" -Dtarget="$scratch/target" "${@:2}"
}

parts() { # parts ENGINE: the checksums of the jars that the job server is made of
  maven "$1" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$scratch/$1" >&2
  (cd "$scratch/$1" && sha256sum -- *.jar)
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
  exit
fi

tools/environment.sh engines
for engine in "${!DRIVERS[@]}"; do
  jar=$HERE/job-server-$engine.jar
  if [[ ! -f $jar || $PARTS/pom.xml -nt $jar ]]; then
    parts "$engine" | diff - "$PARTS/$engine.sha256" || {
      echo "engines: the parts of the job server for $engine are not those of $PARTS/$engine.sha256" >&2
      exit 1
    }
    maven "$engine" package
    mv "$scratch/target/job-server-$engine.jar" "$jar"
    rm -rf "$scratch/target"
  fi
done
go build -C "$PARTS/prism" -trimpath -o "$HERE/bin/prism" github.com/apache/beam/sdks/v2/go/cmd/prism
