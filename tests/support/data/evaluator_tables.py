"""Evaluates models on a table with both executors: rows with missing values and lists, written in several files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from components.base.config_section import Task
from components.results.decision import FILE, Decision, Decisions

ROWS, CLASSES = 160, 3
OUTPUT = {"binary": "probability", "multiclass": "probabilities", "regression": "prediction"}

Metrics = dict[tuple[str, str], tuple[float, float, float]]
"""(slice, TFMA's key) → value and the bounds of its interval; 0 without one."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation as TFMA's loaders read it.

    Attributes:
      metrics: the metrics.
      plots: slice → all numbers of its plots.
      config: TFMA's config.
      slices: number of slices that `tfma.load_eval_result` finds with metrics and with plots.
      validated: whether TFMA's validator finds a result.
      messages: what the executor has logged.
    """

    metrics: Metrics
    plots: Mapping[str, list[float]]
    config: str
    slices: tuple[int, int]
    validated: bool
    messages: list[str]


@dataclass(frozen=True)
class Setting:
    """What to evaluate.

    Attributes:
      task: the models' task.
      section: `evaluation` of a config.
      baseline: Whether to evaluate a baseline, too.
      stored: parquet or tfrecord.
      own_code: Whether the models have only serving_default, like models from a user's code.
      plan: further fields of the plan. With `quantiles`, the candidate predicts these too, and the baseline does not.
      unknown_shape: whether the models do not say what shape their predictions have.
      replaced: Columns that replace columns of the table by the same name.
      thresholds: model or baseline_model → the threshold of its decisions.
      beam: Beam's options.
    """

    task: Task
    section: Mapping[str, Any]
    baseline: bool = True
    stored: str = "parquet"
    own_code: bool = False
    plan: Mapping[str, Any] = field(default_factory=dict)
    unknown_shape: bool = False
    replaced: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    beam: tuple[str, ...] = ("--runner=DirectRunner", "--direct_running_mode=in_memory", "--sdk_container_image=none")


def table(task: Task) -> dict[str, list[Any]]:
    """Return the columns: a list of values for each row, None where it is missing."""
    random = np.random.default_rng(5)
    score = random.uniform(size=ROWS)
    group = random.choice(np.array(["a", "b", "c", "é"], object), ROWS, p=[0.5, 0.3, 0.1, 0.1])
    truth: Any = (score + random.normal(0, 0.3, ROWS) > 0.5).astype(np.int64)
    # All rows have the same class.
    truth[group == "c"] = 0
    if task == "multiclass":
        # -1 and CLASSES are classes that the model does not have.
        truth = random.choice([-1, 0, 1, 2, CLASSES], ROWS, p=[0.05, 0.4, 0.3, 0.2, 0.05])
    elif task == "regression":
        truth = np.where(random.uniform(size=ROWS) < 0.1, 0.0, score * 7 + random.normal(0, 1, ROWS))
    tags = [random.choice(["x", "y", "z"], int(random.integers(0, 4))).tolist() for _ in range(ROWS)]
    return {
        "score": [None if at % 10 == 3 else [float(value)] for at, value in enumerate(score)],
        "truth": [[value] for value in truth.tolist()],
        "group": [None if at % 7 == 5 else [value] for at, value in enumerate(group)],
        "tags": [tag or None for tag in tags],
        "place": [[at // 155] for at in range(ROWS)],
        "size": [[0.5 + at % 2] for at in range(ROWS)],
        "never": [None] * ROWS,
    }


def evaluate_with_both(folder: Path, setting: Setting) -> tuple[Evaluation, Evaluation]:
    """Evaluate with our executor and with the stock one, in this order; in a child."""
    write_inputs(folder, setting)
    return evaluate(folder, setting, True), evaluate(folder, setting, False)


def write_inputs(folder: Path, setting: Setting) -> None:
    """Write examples and models; in a child, which cannot fork workers afterwards."""
    _write_examples(folder / "examples", {**table(setting.task), **setting.replaced}, setting.stored)
    for name, weight in {"model": 1.0, "baseline_model": 0.6}.items():
        model = folder / name / "Format-Serving"
        _save_model(str(model), setting, weight)
        if name in setting.thresholds:
            (model / FILE).parent.mkdir()
            (model / FILE).write_text(Decisions({"": Decision(setting.thresholds[name], "given")}).to_json())


def _inputs(folder: Path, setting: Setting) -> dict[str, Any]:
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(folder / "examples"), '["eval"]'
    formats = {"parquet": example_gen_pb2.FORMAT_PARQUET, "tfrecord": example_gen_pb2.FORMAT_TF_EXAMPLE}
    examples_utils.set_payload_format(examples, formats[setting.stored])
    inputs = {"examples": [examples]}
    for number, name in enumerate(("model", "baseline_model") if setting.baseline else ("model",)):
        model = standard_artifacts.Model()
        model.uri, model.id = str(folder / name), number + 1
        inputs[name] = [model]
    return inputs


def evaluate(folder: Path, setting: Setting, vectorised: bool = True) -> Evaluation:
    """Evaluate the models in a folder with one of the executors; in a child."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from components.evaluator.eval_config import at_least
    from components.evaluator.executor import Executor, StockExecutor
    from components.evaluator.plan import EvaluationPlan

    inputs, folder = _inputs(folder, setting), folder / ("ours" if vectorised else "stock")
    columns = None if setting.own_code else ("truth",)
    plan = EvaluationPlan.model_validate(
        {
            "evaluation": setting.section,
            "task": setting.task,
            "labels": [{"text": "truth"}],
            "label_columns": columns,
            "prediction_key": OUTPUT[setting.task],
            **({"label_key": "truth"} if setting.own_code else {"preprocessing": ["transform_labels"]}),
            **setting.plan,
        }
    )
    properties = {
        "example_splits": '["eval"]',
        "fairness_indicator_thresholds": "null",
        "plan": plan.model_dump_json(),
    }
    outputs = {"evaluation": [standard_artifacts.ModelEvaluation()], "blessing": [standard_artifacts.ModelBlessing()]}
    for name, [artifact] in outputs.items():
        artifact.uri = str(folder / name)
        Path(artifact.uri).mkdir(parents=True)
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=list(setting.beam), tmp_dir=str(folder / "tmp"), unique_id="1"
    )
    messages = _Messages()
    logging.getLogger().addHandler(messages)
    (Executor if vectorised else StockExecutor)(context).Do(inputs, outputs, properties)
    logging.getLogger().removeHandler(messages)
    # TFX's executor gets the config with TFMA's own thresholds.
    is_stock = not vectorised or any("TFX's own executor" in line for line in messages.lines)
    return _read(str(folder / "evaluation"), messages.lines, (lambda config: config) if is_stock else at_least)


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _read(folder: str, messages: list[str], thresholds: Any) -> Evaluation:
    import re

    import tensorflow_model_analysis as tfma

    metrics: Metrics = {}
    for record in tfma.load_metrics(folder):
        for value in record.metric_keys_and_values:
            interval = value.confidence_interval
            ends = (interval.lower_bound.double_value.value, interval.upper_bound.double_value.value)
            metrics[_slice(record), str(value.key)] = (value.value.double_value.value, *ends)
    plots = {
        _slice(record): [float(number) for number in re.findall(r": (-?[\d.e+-]+)$", str(record), re.MULTILINE)]
        for record in tfma.load_plots(folder)
    }
    result = tfma.load_eval_result(folder)
    validated = tfma.load_validation_result(folder).missing_thresholds is not None
    config = thresholds(result.config)
    sizes = (len(result.slicing_metrics), len(result.plots))
    return Evaluation(metrics, plots, str(config), sizes, validated, messages)


def _slice(record: Any) -> str:
    return ", ".join(
        f"{key.column}={getattr(key, key.WhichOneof('kind'))}" for key in record.slice_key.single_slice_keys
    )


def _write_examples(folder: Path, columns: Mapping[str, list[Any]], stored: str) -> None:
    import pyarrow as pa

    from components.data.examples import ParquetWriter
    from components.data.tfrecord_writer import TfrecordWriter, frame_examples

    arrays = {name: _column(values) for name, values in columns.items()}
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    (folder / "Split-eval").mkdir(parents=True)
    for number, start in enumerate((0, 70, 110)):
        part = batch.slice(start, (70, 40, ROWS)[number])
        path = f"{folder}/Split-eval/data-{number:05d}-of-00003"
        if stored == "parquet":
            file = ParquetWriter(f"{path}.parquet", part.schema)
            file.write(part)
            file.close()
        else:
            records = TfrecordWriter(f"{path}.gz")
            records.write(frame_examples(part))
            records.close()


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    first = next((value[0] for value in values if value), None)
    if first is None:
        return pa.nulls(len(values))
    encoded = [None if row_values is None else [_encode(value) for value in row_values] for row_values in values]
    kind = {str: pa.large_binary(), int: pa.int64(), float: pa.float32()}[type(first)]
    return pa.array(encoded, pa.large_list(kind))


def _encode(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _save_model(folder: str, setting: Setting, weight: float) -> None:
    """Save a model with this project's signatures; its answer depends on its weight and on the score, if present."""
    import tensorflow as tf

    task, kind = setting.task, tf.float32 if setting.task == "regression" else tf.int64
    module = tf.Module()
    module.weight = tf.Variable(weight)

    def answer(score: Any) -> dict[str, Any]:
        value = tf.where(tf.math.is_nan(score), tf.constant(0.3), score)[:, tf.newaxis] * module.weight
        if task == "multiclass":
            value = tf.nn.softmax(tf.concat([value, 1 - value, 0.2 + value**2], axis=1))
        if setting.unknown_shape:
            value = tf.compat.v1.placeholder_with_default(value, None)
        outputs = {OUTPUT[task]: 7 * value if task == "regression" else value}
        if setting.plan.get("quantiles") and weight == 1:
            outputs["quantiles"] = 7 * value + tf.constant([[-1.5, 0.0, 1.0]])
        return outputs

    def parsed(examples: Any, name: str, dtype: Any) -> Any:
        column = tf.io.parse_example(examples, {name: tf.io.VarLenFeature(dtype)})[name]
        missing = float("nan") if dtype == tf.float32 else -9
        # A batch without values does not have a first column.
        return tf.pad(tf.sparse.to_dense(column, missing), [[0, 0], [0, 1]], constant_values=missing)[:, 0]

    examples = tf.TensorSpec([None], tf.string, name="examples")
    functions = {"serving_default": (lambda rows: answer(parsed(rows, "score", tf.float32)), examples)}
    if not setting.own_code:
        functions["raw"] = (lambda columns: answer(columns["score"]), {"score": tf.TensorSpec([None], name="score")})
        functions["transform_labels"] = (lambda rows: {"label": parsed(rows, "truth", kind)}, examples)
    signatures = {
        name: tf.function(function, input_signature=[spec], autograph=False)
        for name, (function, spec) in functions.items()
    }
    tf.saved_model.save(module, folder, signatures=signatures)
