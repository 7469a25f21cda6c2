"""EdgeExporter's executor: trains and converts variants of a blessed model in other processes, and judges each."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow_transform as tft
from tfx import types
from tfx.components.util import model_utils
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from components import version_manifest
from components.data.edge_models import FAILED, PASSED
from components.data.example_artifacts import examples_of
from components.data.saved_model import call, column_of, load, serialized
from components.edge import file_weights
from components.edge.config import VariantConfig
from components.edge.conversion_process import failure
from components.edge.gate import Rows, finite, judge
from components.edge.plan import EdgePlan
from components.edge.verdict import FILE, EdgeVerdict, Latency, Student, VariantResult
from components.errors import InputError, MachineError, PipelineError, find, is_of_machine
from components.features import feature_names
from components.features.compact import PAIR, CompactFeatures
from components.features.host import export, preprocessing
from components.files import is_remote
from components.processes import LostProcessError, describe_exit, with_second_try
from components.trainer.hyperparameters import with_best_values
from components.trainer.plan import TrainingPlan

_SIGNATURE, _TRANSFORM = "transformed", "transform_features"
_ROWS = 50_000
"""Rows of the eval split that are compared, from the first on; fewer if their inputs take more than _BYTES."""
_BYTES = 256 << 20
_PREPROCESSING_ROWS = 1000
_TRAINED, _CONVERTED = ".trained.json", ".json"
"""After the name of a variant, the file that a process writes last."""
_ABORTS = {-number for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL)}
"""Exit codes of a converter that cannot convert a model, and not of one that something else has ended."""

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"
Request: TypeAlias = "Mapping[str, Any]"
"""JSON that a program reads from its standard input."""


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """Writes `verdict.json`; in `passed`, which the Pusher copies, the variants that passed, `preprocessing.json`,
    `preprocessing.py` and the verdict; in `failed` the others that could be converted.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Makes and judges the variants.

        Args:
          input_dict: `model`, `blessing`, `transform_graph`, `transformed_examples` and `examples`; optionally
            `hyperparameters` of a Tuner, see Trainer.
          output_dict: `variants`.
          exec_properties: `plan`, an EdgePlan as JSON.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        plan = EdgePlan.model_validate_json(exec_properties["plan"])
        given = {name: artifact_utils.get_single_instance(each) for name, each in input_dict.items() if each}
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "output")
            output.mkdir()
            verdict = (
                _variants(plan, given, Path(folder), output)
                if model_utils.is_model_blessed(given["blessing"])
                else EdgeVerdict(why="the model is not blessed")
            )
            (output / FILE).write_text(verdict.to_json())
            if (output / PASSED).exists():
                shutil.copy(output / FILE, output / PASSED)
            uri = artifact_utils.get_single_uri(output_dict["variants"])
            for path in sorted(each for each in output.rglob("*") if each.is_file()):
                io_utils.copy_file(str(path), f"{uri}/{path.relative_to(output)}", overwrite=True)
        for each in verdict.variants:
            logging.info("%s: %s", each.name, "; ".join(each.why) or "pass")


def _variants(plan: EdgePlan, given: Mapping[str, types.Artifact], folder: Path, output: Path) -> EdgeVerdict:
    """Makes the variants, in `passed` and `failed` of the output folder."""
    model = path_utils.serving_model_path(given["model"].uri)
    signatures = load(model)
    signature = signatures[_SIGNATURE]
    specs = signature.inputs
    transform = tft.TFTransformOutput(given["transform_graph"].uri)
    text = export.preprocessing(plan.features, transform)
    (output / "preprocessing.json").write_text(text, encoding="utf-8")
    raw = _head(given["examples"], "eval", _PREPROCESSING_ROWS)
    examples = serialized(raw, plan.features.features.columns_read)
    expected = call(signatures[_TRANSFORM], examples)
    wrong = export.difference(preprocessing.Preprocessing(output / "preprocessing.json"), raw, expected)

    most = min(_ROWS, _BYTES // sum(math.prod(spec.shape[1:]) * spec.dtype.size for spec in specs.values()))
    batch = _head(given["transformed_examples"], "eval", most, transform)
    inputs = _inputs(plan, batch, specs)
    (predictions,) = call(signature, inputs).values()
    rows = _rows(plan, batch, predictions)
    _save(folder / "eval.npz", inputs)
    most = min(most, max(each.representative for each in plan.variants))
    _save(
        folder / "train.npz",
        _inputs(plan, _head(given["transformed_examples"], "train", most, transform), specs),
    )
    models = dict.fromkeys((each.name for each in plan.variants), _local(model))
    errors: dict[str, str] = {}
    if plan.training:
        trained = [each for each in plan.variants if each.is_trained]
        teachers, errors = find_teachers(plan, _local(model), examples, expected)
        training = [each for each in trained if each.name not in errors]
        errors |= train(_training_request(plan.training, given, teachers), training, folder)
        models |= {each.name: str(folder / f"{each.name}.model") for each in training}
    made = [each for each in plan.variants if each.name not in errors]
    errors |= convert(models, _local(model), made, folder)

    results = []
    for variant in plan.variants:
        result = _judged(variant, rows, folder, errors.get(variant.name), wrong)
        results.append(result)
        file = folder / f"{variant.name}.tflite"
        if file.exists():
            place = output / (PASSED if result.passed else FAILED)
            place.mkdir(exist_ok=True)
            shutil.copy(file, place)
    if (output / PASSED).exists():
        shutil.copy(output / "preprocessing.json", output / PASSED)
        shutil.copy(preprocessing.__file__, output / PASSED)
    return EdgeVerdict(
        metric=rows.metric_name,
        full=finite(rows.metric(rows.predictions)),
        rows=len(rows.labels),
        preprocessing_rows=raw.num_rows,
        variants=tuple(results),
    )


def _local(folder: str) -> str:
    return folder if is_remote(folder) else str(Path(folder).absolute())


def find_teachers(
    plan: EdgePlan, model: str, examples: npt.NDArray[Any], expected: Columns
) -> tuple[dict[str, str], dict[str, str]]:
    """The teachers' folders by version, "None" for the model of the run; and the variants that cannot have theirs.

    Args:
      plan: the variants.
      model: the folder of the model.
      examples: raw rows, serialized.
      expected: their features in this run.

    Raises:
      InputError: there is no such version, or it differs from its manifest.
    """
    teachers, errors = {"None": model}, {}
    for variant in plan.variants:
        if variant.teacher is None:
            continue
        folder = f"{plan.pushed}/{variant.teacher}"
        if not fileio.exists(folder):
            raise InputError(
                f"edge: expected the teacher of {variant.name} in {folder}, received nothing",
                "name a pushed version; `runner.py models` lists them",
            )
        if not is_remote(folder):
            # A model is a program: it is loaded only if it is the one that was pushed.
            version_manifest.verify(folder)
        different = export.first_difference(expected, call(load(folder)[_TRANSFORM], examples))
        if different:
            errors[variant.name] = f"the teacher's features are not those of the run: {different}"
        teachers[str(variant.teacher)] = folder
    return teachers, errors


def _training_request(
    training: TrainingPlan, given: Mapping[str, types.Artifact], teachers: Mapping[str, str]
) -> Request:
    """What `training_process` reads beside the variants."""
    if "hyperparameters" in given:
        training = with_best_values(training, given["hyperparameters"].uri)
    return {
        "plan": training.model_dump(mode="json"),
        "model": teachers["None"],
        "teachers": teachers,
        "transform_graph": given["transform_graph"].uri,
        **{split: list(examples_of(given["transformed_examples"], split).paths) for split in ("train", "eval")},
    }


def train(request: Request, variants: Sequence[VariantConfig], folder: Path) -> dict[str, str]:
    """Trains variants in a process of its own; if it is killed, another one trains those that are not done.

    Args:
      request: see `training_process`, without `variants` and `folder`.
      variants: what to make.
      folder: with `eval.npz`; gets the models.

    Returns:
      Variant → why it cannot be made.

    Raises:
      LostProcessError: both processes were killed.
      MachineError: a process ended without a result.
    """

    def attempt() -> None:
        remaining = _without_result(variants, folder, _TRAINED)
        settings = [each.model_dump(mode="json") for each in remaining]
        child = _run("training_process", {**request, "variants": settings, "folder": str(folder)})
        if unfinished := _without_result(remaining, folder, _TRAINED):
            raise _failure(f"the training of {unfinished[0].name}", child)

    with_second_try(attempt)
    results = {each.name: json.loads((folder / f"{each.name}{_TRAINED}").read_text()) for each in variants}
    return {name: result["error"] for name, result in results.items() if "error" in result}


def _without_result(variants: Sequence[VariantConfig], folder: Path, suffix: str) -> list[VariantConfig]:
    return [each for each in variants if not (folder / f"{each.name}{suffix}").exists()]


class _AbortedError(LostProcessError):
    """A converter has ended itself; `details` is what it has written about that."""


def _failure(what: str, child: subprocess.CompletedProcess[str]) -> PipelineError:
    """The error for a child without a result."""
    ended = f"{what} {describe_exit(child.returncode)}"
    logging.error("%s:\n%s", ended, child.stderr)
    remedy = "see the node's log; if memory was short, give the machine more; then --resume the run"
    if child.returncode in _ABORTS and not is_of_machine(child.stderr):
        return _AbortedError(ended, remedy, [failure(child.stderr)])
    if child.returncode < 0:
        return LostProcessError(ended, remedy)
    # The exception that ended it, such as one for a full disk, and none that it has logged before.
    return find(RuntimeError(child.stderr.rpartition("Traceback (")[2])) or MachineError(ended, remedy)


def _run(module: str, request: Request) -> subprocess.CompletedProcess[str]:
    # Without accelerators: the files run on a CPU.
    return subprocess.run(
        [sys.executable, "-m", f"components.edge.{module}"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )


def convert(
    models: Mapping[str, str], reference: str, variants: Sequence[VariantConfig], folder: Path
) -> dict[str, str]:
    """Converts models in processes of their own: one, and others for the rest if the converter aborts it.

    A process that is killed is replaced once. An abort tells about the variant if it is repeated in a second process.

    Args:
      models: variant → the folder of its SavedModel, with the signature `transformed`, which has one output.
      reference: the model whose latency the others are compared with.
      variants: what to make.
      folder: with `eval.npz` and `train.npz`; gets the files, see `conversion_process`.

    Returns:
      Variant → why it could not be made or run.

    Raises:
      LostProcessError: both processes were killed.
      MachineError: a process ended without a result for another reason than an abort.
    """
    errors: dict[str, str] = {}

    def attempt() -> None:
        remaining = [each for each in _without_result(variants, folder, _CONVERTED) if each.name not in errors]
        request = {
            "model": reference,
            "signature": _SIGNATURE,
            "folder": str(folder),
            "variants": [
                {
                    "name": each.name,
                    "model": models[each.name],
                    "quantize": each.quantize,
                    "representative": each.representative,
                }
                for each in remaining
            ],
        }
        child = _run("conversion_process", request)
        if unfinished := _without_result(remaining, folder, _CONVERTED):
            raise _failure(f"the converter of {unfinished[0].name}", child)

    while any(each.name not in errors for each in _without_result(variants, folder, _CONVERTED)):
        try:
            with_second_try(attempt)
        except _AbortedError as error:
            aborted = next(each for each in _without_result(variants, folder, _CONVERTED) if each.name not in errors)
            errors[aborted.name] = f"the converter was aborted: {error.details[0]}"
    results = {each.name: _measured(folder, each) for each in variants if each.name not in errors}
    return errors | {name: result["error"] for name, result in results.items() if "error" in result}


def _measured(folder: Path, variant: VariantConfig) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((folder / f"{variant.name}{_CONVERTED}").read_text())
    return measured


def _judged(variant: VariantConfig, rows: Rows, folder: Path, error: str | None, wrong: str | None) -> VariantResult:
    if error is not None:
        return VariantResult(variant.name, (f"not made: {error}",))
    predictions = np.load(folder / f"{variant.name}.npy").reshape(rows.predictions.shape)
    content = (folder / f"{variant.name}.tflite").read_bytes()
    latencies = [Latency(**each) for each in _measured(folder, variant)["latencies"]]
    result = judge(variant, rows, content, predictions, latencies, _student(variant, rows, folder))
    if weights := file_weights.read(content):
        result = replace(result, sparsity=weights.sparsity, distinct=weights.distinct)
    if variant.is_trained:
        trained = json.loads((folder / f"{variant.name}{_TRAINED}").read_text())
        layers, left_out = (tuple(trained.get(name, ())) for name in ("layers", "left_out"))
        result = replace(result, layers=layers, left_out=left_out)
    return replace(result, why=(wrong, *result.why)) if wrong else result


def _student(variant: VariantConfig, rows: Rows, folder: Path) -> Student | None:
    if not variant.student:
        return None

    def metrics(of_seeds: npt.NDArray[Any]) -> tuple[float | None, ...]:
        return tuple(finite(rows.metric(each.reshape(rows.predictions.shape))) for each in of_seeds)

    with np.load(folder / f"{variant.name}.seeds.npz") as seeds:
        return Student(metrics(seeds["taught"]), metrics(seeds["alone"]))


def _head(
    artifact: types.Artifact, split: str, count: int, transform: tft.TFTransformOutput | None = None
) -> pa.RecordBatch:
    """The first rows of a split, raw or with the transformed schema."""
    schema = transform.transformed_metadata.schema if transform else None
    batches, rows = [], 0
    for batch in examples_of(artifact, split, schema).batches():
        batches.append(batch)
        rows += batch.num_rows
        if rows >= count:
            break
    return pa.Table.from_batches(batches).slice(0, count).combine_chunks().to_batches()[0]


def _inputs(plan: EdgePlan, batch: pa.RecordBatch, specs: Mapping[str, Any]) -> Columns:
    """The inputs of the signature, [rows] or [rows, width]."""
    columns = {name: _dense(batch, name) for name in specs}
    compact = CompactFeatures.find(plan.features.features).only(specs)
    stored = {name: columns[name] for name in compact.images}
    stored |= {name: columns[name].reshape(-1, PAIR) for name in compact.bins}
    columns |= {name: each.numpy() for name, each in compact.expand(stored).items()}
    return {
        name: columns[name].reshape(-1, *spec.shape[1:]).astype(spec.dtype.as_numpy_dtype)
        for name, spec in specs.items()
    }


def _dense(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    return np.asarray(column_of(batch, name).flatten())


def _rows(plan: EdgePlan, batch: pa.RecordBatch, predictions: npt.NDArray[Any]) -> Rows:
    labels = _dense(batch, feature_names.LABEL).astype("f8")
    weights = _dense(batch, feature_names.WEIGHT).astype("f8") if plan.features.weight else np.ones(len(labels))
    shape = predictions.shape if plan.features.task == "multiclass" else (-1,)
    return Rows(plan.features.task, labels, weights, predictions.reshape(shape))


def _save(path: Path, columns: Columns) -> None:
    with path.open("wb") as file:
        np.savez(file, **columns)
