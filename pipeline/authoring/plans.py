"""Derives the plans of nodes from the config, for the pipeline and for commands."""

from __future__ import annotations

from components.base.node import ModelPlans
from components.evaluator.plan import PSEUDO_LABEL, EvaluationPlan
from components.features import feature_names
from components.features.config import Cross
from components.features.image_ops import Image
from components.features.plan import FeaturePlan, RowKey
from components.features.sequence_ops import EventSequence, OfHistory
from components.ingest.config import DataConfig
from components.ingest.window_config import ORIGIN
from components.results.model_outputs import PREDICTION_KEY
from components.trainer.plan import ExcludeSeen, TrainingPlan
from pipeline.authoring.config import Config
from pipeline.authoring.config.model_checks import user_columns
from pipeline.authoring.protected_attributes import find_protected


def training_plan(config: Config) -> TrainingPlan:
    """Return the Trainer's plan, with all settings that it depends on."""
    user_code = config.model.run_fn or config.features.preprocessing_fn
    features = FeaturePlan(
        features=config.features,
        labels=config.data.declared_labels,
        task=config.data.task,
        classes=config.data.classes,
        intervals=config.data.intervals if config.data.task == "survival" else None,
        row_key=None if user_code else _row_key(config.data, config.model.list_column),
        weight=config.data.weight,
        list_column=config.model.list_column,
        item=next(iter(config.model.item), None),
    )
    return TrainingPlan(
        features=features,
        model=config.model,
        training=config.training,
        exclude_seen=_exclude_seen(config),
        decide=config.evaluation.decide,
    )


def evaluation_plan(config: Config, force_bless: str | None = None) -> EvaluationPlan:
    """Return the Evaluator's plan, with all settings that the verdict depends on.

    Args:
      config: Config of the pipeline.
      force_bless: Reason for blessing the model although thresholds fail. If None, the thresholds decide.
    """
    features, has_run_fn = training_plan(config).features, config.model.run_fn is not None
    has_label = bool(features.labels[0].text)
    return EvaluationPlan(
        evaluation=config.evaluation,
        task=features.task,
        force_bless=force_bless,
        labels=features.labels,
        label_key=config.evaluation.label_key or (feature_names.LABEL if has_label else PSEUDO_LABEL),
        preprocessing=config.evaluation.preprocessing if has_run_fn else ("transform_labels",) if has_label else (),
        prediction_key=None if has_run_fn else PREDICTION_KEY[features.task],
        label_columns=None if has_run_fn else features.label_columns,
        feature_columns=None if config.features.preprocessing_fn else _list_feature_columns(config),
        image_columns=tuple(
            column
            for feature in config.features.declared
            if isinstance(feature.op, Image)
            for column in feature.columns
        ),
        class_weights=config.training.class_weights is not None,
        loss=config.model.loss,
        quantiles=config.model.quantiles if config.model.loss == "quantile" else (),
        tweedie_power=config.model.tweedie_power,
        weight=features.weight,
        needed_columns=_list_needed_columns(config),
        past_columns=windows.added if (windows := config.data.ingested_windows) else (),
    )


def _list_feature_columns(config: Config) -> tuple[str, ...]:
    """Return the columns that the Evaluator checks for leakage, and whose importance it measures.

    For a retrieval, the columns of the item are left out, because the item is what the model predicts.
    """
    return tuple(name for name in config.features.columns_read if name not in config.model.item)


def _list_needed_columns(config: Config) -> dict[str, str]:
    """Return the feature columns that must not be proposed as unneeded → the reason."""
    features, data = config.features, config.data
    read = _list_feature_columns(config)
    needed = dict.fromkeys(find_protected(read), "it is a protected attribute of persons")
    for feature in features.declared:
        of = (feature.op.of,) if isinstance(feature.op, EventSequence) and feature.op.of else ()
        along = (feature.op.along,) if isinstance(feature.op, OfHistory) and feature.op.along else ()
        used = () if isinstance(feature.op, Cross) else feature.columns[1:]
        needed |= dict.fromkeys((*of, *along, *used), f"the feature {feature.name} uses it")
    if config.evaluation.exclude_seen is not False and data.task == "retrieval":
        needed |= dict.fromkeys(user_columns(config), "it may identify the user")
    needed |= dict.fromkeys(data.split.columns, "data.split uses it")
    needed |= {name: f"evaluation.{key[0]} names it" for key, name in config.evaluation.columns()}
    needed |= dict.fromkeys(config.evaluation.max_importance, "evaluation.max_importance names it")
    needed |= dict.fromkeys([data.weight] if data.weight else [], "data.weight names it")
    labels = (name for label in data.declared_labels for name in label.columns)
    needed |= dict.fromkeys(labels, "the label reads it")
    return {name: reason for name, reason in needed.items() if name in read}


def make_model_plans(config: Config) -> ModelPlans:
    """Return the plans that optional nodes need to use the model."""
    return ModelPlans(training=training_plan(config), evaluation=evaluation_plan(config))


def _exclude_seen(config: Config) -> ExcludeSeen | None:
    """Return the columns that identify users whose seen items are left out; None if a retrieval keeps such items."""
    chosen = config.evaluation.exclude_seen
    if config.data.task != "retrieval" or chosen is False:
        return None
    columns = (chosen,) if isinstance(chosen, str) else user_columns(config)
    split = config.data.split
    if split.by.startswith("within") and split.columns[0] in columns:
        columns = split.columns[:1]
    return ExcludeSeen(columns=columns, required=chosen is not None) if columns else None


def _row_key(data: DataConfig, list_column: str | None) -> RowKey | None:
    """Return the key that the Trainer uses to hold out whole groups or the newest rows, like `data.split`.

    Otherwise, whole lists are held out. Return None if the Trainer holds out single rows.
    """
    split = data.split
    if data.windows:
        return RowKey(by="origin", columns=(ORIGIN, data.windows.time))
    if split.by == "time":
        return RowKey(by="time", columns=split.columns)
    if split.by == "within_time":
        return RowKey(by="time", columns=split.columns[1:2])
    grouped = split.by in ("hash", "group") and split.columns
    if grouped:
        return RowKey(by="group", columns=split.columns)
    return RowKey(by="group", columns=(list_column,)) if list_column else None
