"""EdgeExporter's executor: train and convert variants of a blessed model in other processes, and judge them."""

from __future__ import annotations

import json
import logging
import math
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
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

from components.base.child_process import WaitingProcess
from components.base.errors import InputError, MachineError, PipelineError, find, is_of_machine
from components.base.files import is_remote
from components.base.processes import LostProcessError, describe_exit, with_second_try
from components.compat.tfx import executor_context
from components.data.decisions import read as read_decisions
from components.data.edge_models import FAILED, PASSED
from components.data.example_artifacts import examples_of
from components.data.saved_model import call, column_of, load, serialize
from components.edge import accelerators, file_metadata, file_weights
from components.edge.config import VariantConfig
from components.edge.conversion_process import summarize_error
from components.edge.device import run_on_device
from components.edge.file_metadata import ModelDescription
from components.edge.gate import Rows, finite_or_none, judge
from components.edge.plan import EdgePlan
from components.edge.verdict import FILE, EdgeVerdict, Latency, Student, TensorRange, VariantResult
from components.features import feature_names
from components.features.compact import PAIR, CompactFeatures
from components.features.host import export, preprocessing
from components.results import version_manifest
from components.trainer.hyperparameters import with_best_values
from components.trainer.plan import TrainingPlan

_SIGNATURE, _TRANSFORM = "transformed", "transform_features"
_MAX_ROWS = 50_000
"""Maximum number of rows at the beginning of the eval split that are compared. It is reduced if their inputs need more
than `_MAX_BYTES`."""
_MAX_BYTES = 256 << 20
_REPRESENTATIVE_FACTOR = 10
"""Number of training rows that are read per representative row, so that rare classes are among them."""
_PREPROCESSING_ROWS = 1000
"""Number of rows on which the exported preprocessing is compared with the transform graph."""
_TRAINED, _CONVERTED = ".trained.json", ".json"
"""Suffixes of the file that a process writes last for a variant. The file begins with the variant's name."""
_ABORTS = {-number for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL)}
"""Exit codes of a converter that aborts because it cannot convert a model."""

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"
Request: TypeAlias = "Mapping[str, Any]"
"""The argument of a process's function."""


class Executor(base_executor.BaseExecutor):  # type: ignore[misc]
    """Writes the variants and a verdict on them.

    The output contains `verdict.json` and two folders. `passed`, which the Pusher copies, contains the variants that
    passed, `preprocessing.json`, `preprocessing.py` and the verdict. `failed` contains the other variants that could be
    converted.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Create and judge the variants.

        Args:
          input_dict: `model`, `blessing`, `transform_graph`, `transformed_examples` and `examples`; optionally
            `hyperparameters`, the Tuner's output.
          output_dict: `variants`.
          exec_properties: `plan`, an EdgePlan as JSON.

        Raises:
          InputError: If a teacher does not exist, or differs from its manifest.
          LostProcessError: If the training or the conversion was killed twice.
          MachineError: If the training or the conversion ended without a result.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        plan = EdgePlan.model_validate_json(exec_properties["plan"])
        inputs = {
            name: artifact_utils.get_single_instance(artifacts) for name, artifacts in input_dict.items() if artifacts
        }
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "output")
            output.mkdir()
            verdict = (
                _create_variants(plan, inputs, _name_run(executor_context(self)), Path(folder), output)
                if model_utils.is_model_blessed(inputs["blessing"])
                else EdgeVerdict(why="the model is not blessed")
            )
            (output / FILE).write_text(verdict.to_json())
            if (output / PASSED).exists():
                shutil.copy(output / FILE, output / PASSED)
            uri = artifact_utils.get_single_uri(output_dict["variants"])
            for path in sorted(path for path in output.rglob("*") if path.is_file()):
                io_utils.copy_file(str(path), f"{uri}/{path.relative_to(output)}", overwrite=True)
        for variant in verdict.variants:
            logging.info("%s: %s", variant.name, "; ".join(variant.why) or "pass")


def _name_run(context: base_executor.BaseExecutor.Context | None) -> tuple[str, str]:
    """Return the name of the pipeline and the ID of the run; both are empty outside a run."""
    return (context.pipeline_info.id, context.pipeline_run_id) if context else ("", "")


def _create_variants(
    plan: EdgePlan, inputs: Mapping[str, types.Artifact], run: tuple[str, str], folder: Path, output: Path
) -> EdgeVerdict:
    """Create and judge the variants.

    Args:
      plan: The variants, and the operations that precede the model.
      inputs: Name → input artifact of the node.
      run: Name of the pipeline and ID of the run, for the metadata of the files.
      folder: Folder for temporary files.
      output: Folder whose subfolders `passed` and `failed` get the variants.
    """
    model = path_utils.serving_model_path(inputs["model"].uri)
    signatures = load(model)
    signature = signatures[_SIGNATURE]
    specs = signature.inputs
    transform = tft.TFTransformOutput(inputs["transform_graph"].uri)
    text = export.preprocessing(plan.features, transform)
    (output / "preprocessing.json").write_text(text, encoding="utf-8")
    raw = _read_head(inputs["examples"], "eval", _PREPROCESSING_ROWS)
    examples = serialize(raw, plan.features.features.columns_read)
    expected = call(signatures[_TRANSFORM], examples)
    preprocessing_error = export.difference(preprocessing.Preprocessing(output / "preprocessing.json"), raw, expected)

    bytes_per_row = sum(math.prod(spec.shape[1:]) * spec.dtype.size for spec in specs.values())
    max_rows = min(_MAX_ROWS, _MAX_BYTES // bytes_per_row)
    batch = _read_head(inputs["transformed_examples"], "eval", max_rows, transform)
    columns = _convert_inputs(plan, batch, specs)
    (predictions,) = call(signature, columns).values()
    rows = _create_rows(plan, batch, predictions)
    _save(folder / "eval.npz", columns)
    count = max(variant.representative for variant in plan.variants)
    read = min(max_rows, count * _REPRESENTATIVE_FACTOR)
    train_batch = _read_head(inputs["transformed_examples"], "train", read, transform)
    if plan.features.task != "regression":
        train_batch = train_batch.take(pa.array(balance(_flatten_column(train_batch, feature_names.LABEL), count)))
    _save(folder / "train.npz", _convert_inputs(plan, train_batch.slice(0, count), specs))
    models = dict.fromkeys((variant.name for variant in plan.variants), _absolute(model))
    errors: dict[str, str] = {}
    if plan.training:
        teachers, errors = find_teachers(plan, _absolute(model), examples, expected)
        to_train = [variant for variant in plan.variants if variant.is_trained and variant.name not in errors]
        errors |= train(_create_training_request(plan.training, inputs, teachers), to_train, folder)
        models |= {variant.name: str(folder / f"{variant.name}.model") for variant in to_train}
    to_convert = [variant for variant in plan.variants if variant.name not in errors]
    decision = read_decisions(model).get(plan.features.labels[0].name)
    threshold = decision.threshold if decision else None
    description = file_metadata.describe(*run, plan.features, json.loads(text), threshold)
    errors |= convert(models, _absolute(model), to_convert, description, folder)

    results = []
    for variant in plan.variants:
        result = _judge_variant(variant, rows, folder, errors.get(variant.name), preprocessing_error)
        results.append(result)
        file = folder / f"{variant.name}.tflite"
        if file.exists():
            destination = output / (PASSED if result.passed else FAILED)
            destination.mkdir(exist_ok=True)
            shutil.copy(file, destination)
    if (output / PASSED).exists():
        shutil.copy(output / "preprocessing.json", output / PASSED)
        shutil.copy(preprocessing.__file__, output / PASSED)
    return EdgeVerdict(
        metric=rows.metric_name,
        full=finite_or_none(rows.metric(rows.predictions)),
        rows=len(rows.labels),
        preprocessing_rows=raw.num_rows,
        variants=tuple(results),
    )


def _absolute(folder: str) -> str:
    return folder if is_remote(folder) else str(Path(folder).absolute())


def find_teachers(
    plan: EdgePlan, model: str, examples: npt.NDArray[Any], expected: Columns
) -> tuple[dict[str, str], dict[str, str]]:
    """Find the teachers of all variants, and compare their features with the features of the run.

    Args:
      plan: The variants, and the push folder.
      model: Folder of the run's model.
      examples: Raw rows as serialized tf.Examples; [rows].
      expected: Name → features of these rows in this run; [rows, ...].

    Returns:
      Version → folder of the teacher, where the version "None" is the run's model; and variant → reason why its teacher
      cannot be used.

    Raises:
      InputError: If a version does not exist, or differs from its manifest.
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
            # A SavedModel can execute arbitrary code: load it only if its files are unchanged since the push.
            version_manifest.verify(folder)
        different = export.first_difference(expected, call(load(folder)[_TRANSFORM], examples))
        if different:
            errors[variant.name] = f"the teacher's features differ from the run's features: {different}"
        teachers[str(variant.teacher)] = folder
    return teachers, errors


def _create_training_request(
    training: TrainingPlan, inputs: Mapping[str, types.Artifact], teachers: Mapping[str, str]
) -> Request:
    """Return a request for `training_process`, without `variants` and `folder`."""
    if "hyperparameters" in inputs:
        training = with_best_values(training, inputs["hyperparameters"].uri)
    return {
        "plan": training.model_dump(mode="json"),
        "model": teachers["None"],
        "teachers": teachers,
        "transform_graph": inputs["transform_graph"].uri,
        **{split: list(examples_of(inputs["transformed_examples"], split).paths) for split in ("train", "eval")},
    }


def train(request: Request, variants: Sequence[VariantConfig], folder: Path) -> dict[str, str]:
    """Train variants in a separate process. If it is killed, a second process trains the remaining variants.

    Args:
      request: Request for `training_process`, without `variants` and `folder`.
      variants: Variants to train.
      folder: Folder with `eval.npz`, to which the models are written.

    Returns:
      Variant → reason why it could not be trained.

    Raises:
      LostProcessError: If both processes were killed.
      MachineError: If a process ended without a result.
    """

    def attempt() -> None:
        remaining = _find_unfinished(variants, folder, _TRAINED)
        settings = [variant.model_dump(mode="json") for variant in remaining]
        child = _run_process("training_process", {**request, "variants": settings, "folder": str(folder)})
        if unfinished := _find_unfinished(remaining, folder, _TRAINED):
            raise _create_error(f"the training of {unfinished[0].name}", child)

    with_second_try(attempt)
    results = {variant.name: json.loads((folder / f"{variant.name}{_TRAINED}").read_text()) for variant in variants}
    return {name: result["error"] for name, result in results.items() if "error" in result}


def _find_unfinished(variants: Sequence[VariantConfig], folder: Path, suffix: str) -> list[VariantConfig]:
    """Return the variants for which a process has not written its last file."""
    return [variant for variant in variants if not (folder / f"{variant.name}{suffix}").exists()]


class _AbortedError(LostProcessError):
    """A converter aborted; `details` contains its last message."""


def _create_error(task: str, child: WaitingProcess) -> PipelineError:
    """Return the error for a process that ended without a result.

    Args:
      task: Description of the work that the process did not finish, for the message.
      child: The ended process.
    """
    code, output = child.wait(), child.output()
    message = f"{task} {describe_exit(code)}"
    logging.error("%s:\n%s", message, output)
    remedy = "see the node's log; if memory was short, give the machine more; then --resume the run"
    if code in _ABORTS and not is_of_machine(output):
        return _AbortedError(message, remedy, [summarize_error(output)])
    if code < 0:
        return LostProcessError(message, remedy)
    # Search only the last traceback: it belongs to the exception that ended the process, such as a full disk. Earlier
    # tracebacks were only logged.
    return find(RuntimeError(output.rpartition("Traceback (")[2])) or MachineError(message, remedy)


def _run_process(module: str, request: Request) -> WaitingProcess:
    """Run a process of this package to its end."""
    process = WaitingProcess(f"components.edge.{module}", fork=False)
    process.run(request)
    process.wait()
    return process


def convert(
    models: Mapping[str, str],
    reference: str,
    variants: Sequence[VariantConfig],
    description: ModelDescription,
    folder: Path,
) -> dict[str, str]:
    """Convert models in a separate process.

    If the converter aborts the process, a second process repeats the conversion. If it aborts again, the variant cannot
    be converted, and further processes convert the remaining variants. A process that is killed is replaced once.

    Args:
      models: Variant → folder of its SavedModel, whose signature `transformed` must have one output.
      reference: Folder of the model with which latencies are compared.
      variants: Variants to convert.
      description: Meaning of the inputs and the prediction, for the metadata of the files.
      folder: Folder with `eval.npz` and `train.npz`, to which the files are written; see `conversion_process`.

    Returns:
      Variant → reason why it could not be converted or run.

    Raises:
      LostProcessError: If both processes were killed.
      MachineError: If a process ended without a result for another reason than an abort.
    """
    errors: dict[str, str] = {}

    def list_remaining() -> list[VariantConfig]:
        return [variant for variant in _find_unfinished(variants, folder, _CONVERTED) if variant.name not in errors]

    def attempt() -> None:
        remaining = list_remaining()
        request = {
            "model": reference,
            "signature": _SIGNATURE,
            "folder": str(folder),
            "description": asdict(description),
            "variants": [
                {
                    "name": variant.name,
                    "model": models[variant.name],
                    "quantize": variant.quantize,
                    "io": variant.io,
                    "representative": variant.representative,
                }
                for variant in remaining
            ],
        }
        child = _run_process("conversion_process", request)
        if unfinished := _find_unfinished(remaining, folder, _CONVERTED):
            raise _create_error(f"the converter of {unfinished[0].name}", child)

    while list_remaining():
        try:
            with_second_try(attempt)
        except _AbortedError as error:
            # Variants are converted in order, so the first without a result aborted the process.
            errors[list_remaining()[0].name] = f"the converter was aborted: {error.details[0]}"
    results = {variant.name: _read_result(folder, variant) for variant in variants if variant.name not in errors}
    return errors | {name: result["error"] for name, result in results.items() if "error" in result}


def _read_result(folder: Path, variant: VariantConfig) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"{variant.name}{_CONVERTED}").read_text())
    return result


def _judge_variant(
    variant: VariantConfig, rows: Rows, folder: Path, error: str | None, preprocessing_error: str | None
) -> VariantResult:
    """Check a variant against its bounds.

    Args:
      variant: Settings of the variant.
      rows: Rows with the predictions of the full model.
      folder: Folder with the results of the two processes.
      error: Reason why the variant could not be trained or converted. None if it was converted.
      preprocessing_error: Reason why the exported preprocessing is wrong, for all variants. None if it is correct.
    """
    if error is not None:
        return VariantResult(variant.name, (f"cannot be created: {error}",))
    predictions = np.load(folder / f"{variant.name}.npy").reshape(rows.predictions.shape)
    content = (folder / f"{variant.name}.tflite").read_bytes()
    converted = _read_result(folder, variant)
    latencies = [Latency(**fields) for fields in converted["latencies"]]
    device = None
    if variant.device:
        with np.load(folder / "eval.npz") as columns:
            file = folder / f"{variant.name}.tflite"
            device = run_on_device(variant.device, file, dict(columns), rows, predictions)
    result = judge(variant, rows, content, predictions, latencies, _measure_student(variant, rows, folder), device)
    tensors = {name: TensorRange(**fields) for name, fields in converted["tensors"].items()}
    result = replace(result, tensors=tensors, unsupported=accelerators.find_unsupported(content))
    if weights := file_weights.read(content):
        result = replace(result, sparsity=weights.sparsity, distinct=weights.distinct)
    if variant.is_trained:
        trained = json.loads((folder / f"{variant.name}{_TRAINED}").read_text())
        layers, left_out = (tuple(trained.get(name, ())) for name in ("layers", "left_out"))
        removed = {name: (before, after) for name, (before, after) in trained.get("removed", {}).items()}
        result = replace(result, layers=layers, left_out=left_out, removed=removed, whole=trained.get("whole", {}))
    return replace(result, why=(preprocessing_error, *result.why)) if preprocessing_error else result


def _measure_student(variant: VariantConfig, rows: Rows, folder: Path) -> Student | None:
    if not variant.student:
        return None

    def compute_metrics(predictions: npt.NDArray[Any]) -> tuple[float | None, ...]:
        shape = rows.predictions.shape
        return tuple(finite_or_none(rows.metric(of_seed.reshape(shape))) for of_seed in predictions)

    with np.load(folder / f"{variant.name}.seeds.npz") as seeds:
        return Student(compute_metrics(seeds["taught"]), compute_metrics(seeds["alone"]))


def _read_head(
    artifact: types.Artifact, split: str, count: int, transform: tft.TFTransformOutput | None = None
) -> pa.RecordBatch:
    """Read the first rows of a split.

    Args:
      artifact: Examples.
      split: Name of the split.
      count: Maximum number of rows.
      transform: Transform's output, whose schema is used. If None, the examples are raw.
    """
    schema = transform.transformed_metadata.schema if transform else None
    batches, rows = [], 0
    for batch in examples_of(artifact, split, schema).batches():
        batches.append(batch)
        rows += batch.num_rows
        if rows >= count:
            break
    return pa.Table.from_batches(batches).slice(0, count).combine_chunks().to_batches()[0]


def _convert_inputs(plan: EdgePlan, batch: pa.RecordBatch, specs: Mapping[str, Any]) -> Columns:
    """Convert transformed rows to the inputs of the signature; [rows] or [rows, width]."""
    columns = {name: _flatten_column(batch, name) for name in specs}
    compact = CompactFeatures.find(plan.features.features).only(specs)
    stored = {name: columns[name] for name in compact.images}
    stored |= {name: columns[name].reshape(-1, PAIR) for name in compact.bins}
    columns |= {name: tensor.numpy() for name, tensor in compact.expand(stored).items()}
    return {
        name: columns[name].reshape(-1, *spec.shape[1:]).astype(spec.dtype.as_numpy_dtype)
        for name, spec in specs.items()
    }


def balance(labels: npt.NDArray[Any], count: int) -> npt.NDArray[np.int64]:
    """Return the numbers of rows in turns from each class, so that any first of them represent all classes.

    Args:
      labels: Classes of the rows, [rows].
      count: Maximum number of rows to return.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(classes, kind="stable")
    turns = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[np.lexsort((classes[order], turns))][:count]


def _flatten_column(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    return np.asarray(column_of(batch, name).flatten())


def _create_rows(plan: EdgePlan, batch: pa.RecordBatch, predictions: npt.NDArray[Any]) -> Rows:
    labels = _flatten_column(batch, feature_names.LABEL).astype("f8")
    if plan.features.weight:
        weights = _flatten_column(batch, feature_names.WEIGHT).astype("f8")
    else:
        weights = np.ones(len(labels))
    shape = predictions.shape if plan.features.task == "multiclass" else (-1,)
    return Rows(plan.features.task, labels, weights, predictions.reshape(shape))


def _save(path: Path, columns: Columns) -> None:
    with path.open("wb") as file:
        np.savez(file, **columns)
