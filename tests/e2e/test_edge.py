"""Variants for small devices: a run makes, judges and pushes them; a host predicts raw rows with NumPy and one file."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ai_edge_litert
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from components.edge import device_program
from components.results import version_manifest
from tests.support.data import doc_pages, people
from tests.support.data.file_metadata import read_metadata
from tests.support.programs import programs
from tests.support.runs.command import Ended, command, first_run

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("edge")
    variants = [
        {"quantize": "dynamic"},
        {"quantize": "float16", "max_kilobytes": 0.5},
    ]
    return first_run(folder, "people", "--config", str(people.project(folder, edge=variants)))


def test_version_has_the_variants_that_passed(run: Any) -> None:
    edge = run.first.result["results"]["EdgeExporter"]
    passed, failed = edge["variants"]
    assert (passed["name"], passed["why"]) == ("tflite_dynamic", [])
    assert passed["mean_difference"] < 0.01
    assert edge["preprocessing_rows"] == edge["rows"] > 100
    [reason] = failed["why"]
    assert reason.startswith("kilobytes: expected at most 0.5, received ")
    manifest = version_manifest.verify(run.first.result["pushed"])
    assert {path for path in manifest.files if path.startswith("edge/")} == {
        f"edge/{name}" for name in ("preprocessing.json", "preprocessing.py", "tflite_dynamic.tflite", "verdict.json")
    }
    [artifact] = (run.output / "artifacts" / "EdgeExporter" / "variants").iterdir()
    assert (artifact / "failed" / "tflite_float16.tflite").exists()


def test_file_describes_itself(run: Any) -> None:
    file = Path(run.first.result["pushed"]) / "edge" / "tflite_dynamic.tflite"
    metadata = read_metadata(file.read_bytes())
    manifest = version_manifest.verify(run.first.result["pushed"])
    assert (metadata.text(0), metadata.text(2)) == (f"{manifest.pipeline} tflite_dynamic", manifest.run)
    [graph] = metadata.list_fields(3)
    inputs = {tensor.text(0): tensor.text(1) for tensor in graph.list_fields(2)}
    assert set(inputs) == set(Interpreter(str(file)).get_signature_runner().get_input_details())
    assert sorted(text.split(";")[0] for text in inputs.values()) == [
        "operation bucketize of hours",
        "operation vocab of city",
        "operation z_score of age",
    ]
    with zipfile.ZipFile(file) as archive:
        assert archive.read("labels.txt").decode() == "income == '>50K'\n"


@pytest.mark.slow
def test_variants_that_are_trained_further_are_pushed_or_refused(tmp_path: Path) -> None:
    variants = [
        {"kind": "pruned", "sparsity": 0.5, "clusters": 4, "quantize": "int8", "max_metric_drop": 0.1},
        {"kind": "distilled", "student": {"kind": "linear"}, "steps": 50, "max_metric_drop": 1, "min_gain": 0.5},
        {"kind": "pruned", "channels": 0.5, "quantize": "int8", "max_metric_drop": 0.1, "max_mean_difference": 0.2},
    ]
    run = first_run(tmp_path, "people", "--config", str(people.project(tmp_path, edge=variants)))
    pruned, distilled, cut = run.first.result["results"]["EdgeExporter"]["variants"]
    assert (pruned["why"], pruned["sparsity"]) == ([], pytest.approx(0.5, abs=0.02))
    assert pruned["layers"] == ["hidden_0", "logits"]
    assert len(pruned["left_out"]) == 1
    assert (Path(run.first.result["pushed"]) / "edge" / "pruned_0.5_clustered_4_int8.tflite").exists()
    assert len(distilled["student"]["taught"]) == len(distilled["student"]["alone"]) == 3
    assert [
        reason for reason in distilled["why"] if reason.startswith("gain over the student alone: expected at least 0.5")
    ]
    assert (cut["why"], cut["removed"], cut["whole"]) == ([], {"hidden_0": [8, 4]}, {"logits": "the output"})
    file = Path(run.first.result["pushed"]) / "edge" / "pruned_channels_0.5_int8.tflite"
    # The kernel of hidden_0 is stored as [units, inputs], in int8.
    kernels = [tensor["shape"] for tensor in Interpreter(str(file)).get_tensor_details() if tensor["dtype"] is np.int8]
    assert any(len(shape) == 2 and shape[0] == 4 for shape in kernels)
    shown: Ended = command("runs", "show", *run.config, *run.arguments[-2:])
    assert "pruned_channels_0.5_int8: units or filters: hidden_0 8 → 4; as they are: logits (the output)" in shown.out
    assert "distilled_linear: auc of 3 seeds in float32: " in shown.out


@pytest.mark.slow
@pytest.mark.needs("qemu-aarch64")
@pytest.mark.needs("python-arm64")
def test_variants_run_on_an_emulated_arm64(tmp_path: Path) -> None:
    program = [programs.find("python-arm64"), device_program.__file__, "{model}", "{inputs}", "{outputs}"]
    device = {"command": program, "rows": 100, "max_difference": 0.02}
    variants = [{"quantize": quantize, "device": device} for quantize in ("none", "int8")]
    run = first_run(tmp_path, "people", "--config", str(people.project(tmp_path, edge=variants)))
    for variant in run.first.result["results"]["EdgeExporter"]["variants"]:
        assert variant["why"] == []
        measured = variant["device"]
        assert measured["rows"] == 100
        assert 0 < measured["p50_ms"] <= measured["p99_ms"]
        # The rows are the first of those on which the variant's own AUC is measured.
        assert measured["metric"] == pytest.approx(variant["metric"], abs=0.1)
    shown: Ended = command("runs", "show", *run.config, *run.arguments[-2:])
    assert "tflite_int8 on the device: 100 rows, auc 0." in shown.out


def test_show_and_the_report_have_the_verdict(run: Any) -> None:
    shown: Ended = command("runs", "show", *run.config, *run.arguments[-2:])
    assert "tflite_float16 is not pushed: kilobytes: expected at most 0.5" in shown.out
    assert "tflite_float16 is not pushed" in Path(run.first.result["report"]).read_text()


def test_host_predicts_raw_rows(run: Any, tmp_path: Path) -> None:
    folder = Path(run.first.result["pushed"])
    # A copy, because Python writes its bytecode next to the module, and a pushed version may contain no other file.
    module_file = shutil.copy(folder / "edge" / "preprocessing.py", tmp_path)
    spec = importlib.util.spec_from_file_location("host_preprocessing", module_file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = module.Preprocessing(folder / "edge" / "preprocessing.json")(
        {"age": [34.5, None, 60.5], "hours": [20, 40, 58], "city": ["Łódź", "Nowhere", None]}
    )
    predict = Interpreter(str(folder / "edge" / "tflite_dynamic.tflite")).get_signature_runner()
    rows = [{name: values[row : row + 1] for name, values in inputs.items()} for row in range(3)]
    received = np.concatenate([predict(**row)["probability"] for row in rows])
    raw = tf.saved_model.load(str(folder)).signatures["raw"]
    expected = raw(
        age=tf.constant([34.5, np.nan, 60.5]),
        hours=tf.constant([20, 40, 58], tf.int64),
        city=tf.constant(["Łódź", "Nowhere", ""]),
    )["probability"]
    np.testing.assert_allclose(received, expected.numpy(), atol=0.05)
    assert json.loads((folder / "edge" / "preprocessing.json").read_text())["inputs"] == {
        "age": "float",
        "hours": "int",
        "city": "bytes",
    }


def test_cpp_program_of_the_documentation(run: Any, tmp_path: Path) -> None:
    [program] = doc_pages.blocks(doc_pages.ROOT / "docs" / "how-to" / "edge-device.md", "cpp")
    (tmp_path / "host.cc").write_text(program)
    for name in re.findall(r'#include "(litert/.*)"', program):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(doc_pages.ROOT / "tests" / "support" / "data" / "litert.h", tmp_path / name)
    libraries = Path(ai_edge_litert.__file__).parent
    compiled = subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-Wall",
            "-I.",
            "host.cc",
            libraries / "libLiteRt.so",
            f"-Wl,-rpath,{libraries}",
            "-ohost",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert compiled.returncode == 0, compiled.stderr
    file = Path(run.first.result["pushed"]) / "edge" / "tflite_dynamic.tflite"
    row = {"age": np.array([0.5], np.float32), "hours": np.array([3]), "city": np.array([2])}
    names = list(Interpreter(str(file)).get_signature_runner().get_input_details())
    row = {next(name for name in names if key in name): value for key, value in row.items()}
    expected = Interpreter(str(file)).get_signature_runner()(**row)["probability"].item()
    order = [line.split(":")[0] for line in _host(tmp_path, file, "").splitlines()]
    assert sorted(order) == sorted(names)
    numbers = " ".join(str(row[name].item()) for name in order)
    *_, first, second = _host(tmp_path, file, f"{numbers}\n{numbers}\n").splitlines()
    assert [float(line.split()[0]) for line in (first, second)] == pytest.approx([expected] * 2, abs=1e-3)


def _host(folder: Path, file: Path, rows: str) -> str:
    return subprocess.run(
        [folder / "host", file], input=rows, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_program_of_the_documentation(run: Any, tmp_path: Path) -> None:
    [program] = doc_pages.blocks(doc_pages.ROOT / "docs" / "how-to" / "edge-device.md", "python")
    columns = 'columns |= {"age": [34.5, None], "city": ["Paris", None]}'
    lines = [columns if "|=" in line else line for line in program.splitlines()]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "taxi").symlink_to(run.output)
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    probabilities = [float(number) for number in re.findall(r"\d[\d.e-]*", ended.stdout)]
    assert len(probabilities) == 2
    assert all(0 < probability < 1 for probability in probabilities)
