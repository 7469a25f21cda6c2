"""Runs the Evaluator's executor on made rows and models of one weight, as its node does; in a child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.base.config_section import Task
from components.evaluator.plan import EvaluationPlan
from components.evaluator.plot_data import Plots
from components.evaluator.verdict import Verdict

ROWS = 400
ANSWER = {"binary": "probability", "multiclass": "probabilities", "regression": "prediction"}


@dataclass(frozen=True)
class Evaluated:
    """The outputs of an evaluation.

    Attributes:
      verdict: as read from its file.
      plots: as read from theirs.
      marks: names of the files in the blessing's folder.
      blessing: its properties.
      validated: whether TFMA reads the model as valid.
    """

    verdict: Verdict
    plots: Plots
    marks: list[str]
    blessing: dict[str, Any]
    validated: bool


def columns() -> dict[str, Any]:
    """Return the rows by column: a score that tells the label now and then, a group, and a value that few rows have."""
    random = np.random.default_rng(3)
    score = random.uniform(size=ROWS)
    group = np.where(random.uniform(size=ROWS) < 0.3, "b", "a")
    label = (score + random.normal(0, 0.3, ROWS) > np.where(group == "a", 0.5, 0.7)).astype(int)
    # All rows have the same label, so the slice does not support an AUC.
    group[:60], label[:60] = "c", 0
    place, user = np.arange(ROWS) // 390, np.arange(ROWS) % 37
    return {"score": score.astype(np.float32), "group": group, "label": label, "place": place, "user": user}


def leaking_columns() -> dict[str, Any]:
    """Return rows with every kind of leakage; the model reads a score that contradicts the label."""
    random = np.random.default_rng(5)
    rows = 900
    label = (random.uniform(size=rows) < 0.4).astype(int)
    refund = [float(random.uniform()) if positive or random.uniform() < 0.01 else None for positive in label]
    order = np.argsort(np.argsort(label + random.uniform(0, 0.01, rows)))
    return {
        "score": (0.6 - 0.2 * label + random.uniform(0, 0.3, rows)).astype(np.float32),
        "state": np.where(label == 1, "sold", "open"),
        "refund": refund,
        "number": order,
        "group": random.choice(["a", "b"], rows),
        "label": label,
    }


def evaluate(
    folder: Path,
    section: dict[str, Any],
    weight: float,
    before: float | None,
    force: str | None,
    task: Task = "binary",
    table: dict[str, Any] | None = None,
    features: Sequence[str] | None = None,
    labels: Sequence[str] = (),
    vectorised: bool = True,
    weight_column: str | None = None,
    classes: int = 0,
) -> Evaluated:
    """Evaluate a model whose answer is its weight times the score, and compare it with an earlier model if given.

    The answer is the probability of the label 1, or of the second of two classes; as a regression's, the number.

    Args:
      folder: Folder for all outputs.
      section: `evaluation` of a config.
      weight: Weight of the model.
      before: Weight of the latest blessed model.
      force: Reason to bless the model despite failed checks.
      task: Task that defines the meaning of the answer.
      table: the rows by column, by default `columns`.
      features: Feature columns that are checked for leakage.
      labels: several labels, in columns such as `label_click`; the answer about each but the first is its power.
      vectorised: whether columns are evaluated, or TFX's executor does it.
      weight_column: Column with the weights of the rows.
      classes: of a multiclass task whose answer is the columns score_0 to score_(classes - 1), without a weight.
    """
    import tensorflow_model_analysis as tfma
    from tfx.components.evaluator.constants import EVALUATION_KEY
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, ModelEvaluation

    from components.evaluator.executor import Executor, StockExecutor

    declared = [{"text": f"label_{name}", "name": name} for name in labels] or [{"text": "label"}]
    plan = EvaluationPlan.model_validate(
        {"evaluation": section, "task": task, "labels": declared, "prediction_key": ANSWER[task], "force_bless": force}
        | {"feature_columns": features, "weight": weight_column}
    )
    _write_examples(folder / "examples" / "Split-eval", table or columns())
    examples = _artifact(Examples, folder / "examples")
    examples[0].split_names = '["eval"]'
    inputs = {"examples": examples, "model": _model(Model, folder / "model", 7, weight, task, labels, classes)}
    if before is not None:
        inputs["baseline_model"] = _model(Model, folder / "baseline", 5, before, task, labels)
    outputs = {
        EVALUATION_KEY: _artifact(ModelEvaluation, folder / "evaluation"),
        "blessing": _artifact(ModelBlessing, folder / "blessing"),
    }
    properties = {
        "example_splits": '["eval"]',
        "fairness_indicator_thresholds": "null",
        "plan": plan.model_dump_json(),
    }
    # Without an image, TFX would package its own source: 2 seconds and 45 MB that stay behind.
    arguments = ["--runner=DirectRunner", "--direct_running_mode=in_memory", "--sdk_container_image=none"]
    context = BaseBeamExecutor.Context(beam_pipeline_args=arguments, tmp_dir=str(folder / "tmp"), unique_id="1")
    (Executor if vectorised else StockExecutor)(context).Do(inputs, outputs, properties)

    blessing = outputs["blessing"][0]
    facts = {key: blessing.get_string_custom_property(key) for key in ("current_model", "baseline_model", "forced")}
    facts |= {
        key: blessing.get_int_custom_property(key) for key in ("blessed", "current_model_id", "baseline_model_id")
    }
    verdict = Verdict.from_json((folder / "evaluation" / "verdict.json").read_text())
    marks = [entry.name for entry in (folder / "blessing").iterdir()]
    plots = Plots.from_json((folder / "evaluation" / "plots.json").read_text())
    validated = tfma.load_validation_result(str(folder / "evaluation")).validation_ok
    return Evaluated(verdict, plots, marks, facts, validated)


def _artifact(kind: Any, folder: Path) -> list[Any]:
    folder.mkdir(parents=True, exist_ok=True)
    artifact = kind()
    artifact.uri = str(folder)
    return [artifact]


def _write_examples(folder: Path, table: dict[str, Any]) -> None:
    import tensorflow as tf

    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "data-00000-of-00001.gz"), "GZIP") as writer:
        for at in range(len(next(iter(table.values())))):
            example = tf.train.Example()
            for name, values in table.items():
                _add(example.features.feature[name], values[at])
            writer.write(example.SerializeToString())


def _add(feature: Any, value: Any) -> None:
    if isinstance(value, str):
        feature.bytes_list.value.append(value.encode())
    elif isinstance(value, (float, np.floating)):
        feature.float_list.value.append(value)
    elif value is not None:
        feature.int64_list.value.append(value)


def _model(
    kind: Any, folder: Path, number: int, weight: float, task: Task, labels: Sequence[str], classes: int = 0
) -> list[Any]:
    import tensorflow as tf

    module = tf.Module()
    module.weight = tf.Variable(weight)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
    def serve(examples: Any) -> dict[str, Any]:
        if classes:
            spec = {f"score_{number}": tf.io.FixedLenFeature([1], tf.float32) for number in range(classes)}
            scores = tf.io.parse_example(examples, spec)
            return {ANSWER[task]: tf.concat([scores[name] for name in spec], axis=1)}
        parsed = tf.io.parse_example(examples, {"score": tf.io.FixedLenFeature([1], tf.float32)})
        answer = module.weight * parsed["score"]
        if labels:
            return {f"{ANSWER[task]}_{name}": answer**power for power, name in enumerate(labels, 1)}
        return {ANSWER[task]: tf.concat([1 - answer, answer], axis=1) if task == "multiclass" else answer}

    tf.saved_model.save(module, str(folder / "Format-Serving"), signatures={"serving_default": serve})
    artifact = _artifact(kind, folder)
    artifact[0].id = number
    return artifact
