#!/usr/bin/env bash
# Run a command with the numerical kernels that another CPU would choose: sums have another order and another rounding.
#
#   tools/kernels.sh sse4 COMMAND…     no AVX, no FMA, no oneDNN; one thread per TensorFlow operation
#   tools/kernels.sh avx2 COMMAND…     AVX2 without AVX-512, no oneDNN; four threads per operation
#   tools/kernels.sh newest COMMAND…   the newest that this machine has, with oneDNN; four threads per operation
#
# For example: tools/kernels.sh sse4 make test ARGS="--random-order --random-order-seed=7"
set -euo pipefail

has() { grep -qw "$1" /proc/cpuinfo; }

# NumPy warns of a feature that this machine lacks, so only those that it has are switched off. It also warns of
# AVX512_SPR if it was built without it; that one sorts numbers of 16 bits, which changes no sum.
numpy_without() {
  local feature flag features=()
  for feature in "$@"; do
    flag=${feature,,}
    case $feature in
      AVX512_SKX) flag=avx512bw ;;
      AVX512_CLX) flag=avx512_vnni ;;
      AVX512_CNL) flag=avx512vbmi ;;
      AVX512_ICL) flag=avx512_vbmi2 ;;
      FMA3) flag=fma ;;
    esac
    if has "$flag"; then features+=("$feature"); fi
  done
  export NPY_DISABLE_CPU_FEATURES="${features[*]}"
}

AVX512=(AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL)
case ${1-} in
  sse4)
    # ONEDNN_MAX_CPU_ISA also limits the matrix product that TensorFlow takes from oneDNN when oneDNN is off.
    export TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=SSE41 TF_NUM_INTRAOP_THREADS=1 OPENBLAS_CORETYPE=Prescott
    export ARROW_USER_SIMD_LEVEL=SSE4_2
    # The mathematical functions of the C library.
    export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F
    numpy_without AVX2 FMA3 "${AVX512[@]}"
    ;;
  avx2)
    has avx2 || {
      echo "kernels: this machine lacks AVX2; use sse4" >&2
      exit 2
    }
    # With oneDNN, TensorFlow 2.16 chooses products in 16 bits by the real CPU, and the limited oneDNN dies of them
    # (illegal instruction). Its product of float32 is limited without oneDNN, too.
    export ONEDNN_MAX_CPU_ISA=AVX2 TF_ENABLE_ONEDNN_OPTS=0 TF_NUM_INTRAOP_THREADS=4 OPENBLAS_CORETYPE=Haswell
    export ARROW_USER_SIMD_LEVEL=AVX2
    numpy_without "${AVX512[@]}"
    ;;
  newest)
    export TF_ENABLE_ONEDNN_OPTS=1 TF_NUM_INTRAOP_THREADS=4
    if has avx512bw; then export OPENBLAS_CORETYPE=SkylakeX; else export OPENBLAS_CORETYPE=Haswell; fi
    ;;
  *)
    echo "kernels: expected sse4, avx2 or newest, received '${1-}'" >&2
    exit 2
    ;;
esac
exec "${@:2}"
