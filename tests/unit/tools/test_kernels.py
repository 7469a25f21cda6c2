"""Tests that tools/kernels.sh switches numeric kernels without a warning, and that their rounding differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs.command import ROOT

SCRIPT = ROOT / "tools" / "kernels.sh"
PROGRAM = """
import numpy
values = numpy.random.default_rng(0).normal(size=(256, 256)).astype(numpy.float32)
print((values @ values).tobytes().hex(), numpy.exp(values).tobytes().hex())
"""
HAS_AVX2 = "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    return subprocess.run(
        [str(SCRIPT), *arguments], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )


def products(kernels: str) -> str:
    process = run(kernels, sys.executable, "-W", "error", "-c", PROGRAM)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.skipif(not HAS_AVX2, reason="this machine has no kernels for AVX2")
def test_kernels_round_differently() -> None:
    results = [products(kernels) for kernels in ("sse4", "avx2", "newest")]
    assert results[0] != results[1]
    assert results[0] != results[2]


def test_arguments_and_exit_code_are_passed_through() -> None:
    process = run("sse4", "sh", "-c", 'echo "$1:$TF_NUM_INTRAOP_THREADS"; exit 7', "sh", "two words")
    assert (process.returncode, process.stdout) == (7, "two words:1\n")


def test_unknown_kernels_are_rejected() -> None:
    process = run("486", "true")
    assert (process.returncode, process.stderr) == (2, "kernels: expected sse4, avx2 or newest, received '486'\n")
