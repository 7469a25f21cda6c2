"""Checks of the section `edge` against the other sections of the config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from components.base.config_section import LOSSES, Problem
from components.features.base_op import Embedded
from components.features.config import Hashed
from components.features.host import EXPORTED_OPS
from components.features.image_ops import Image
from components.models.config import ANOMALY_KIND, IMAGE_KINDS, RETRIEVAL_KINDS, ModelConfig


def check_edge(config: Any) -> Iterator[Problem]:
    """Yield models, labels and operations that EdgeExporter cannot convert.

    Args:
      config: The whole config, with a section `edge`.
    """
    if len(config.data.declared_labels) > 1:
        why = "the gate of variants compares the predictions of one label"
        yield Problem(("edge",), f"does not go together with data.labels: {why}; remove one of both")
    if config.data.task == "anomaly":
        yield Problem(("edge",), "does not go together with the task anomaly, which has no label to judge; remove it")
    if config.data.task in ("multilabel", "survival"):
        why = "the gate of variants compares one value per row"
        yield Problem(("edge",), f"does not go together with the task {config.data.task}: {why}; remove it")
    if config.data.task == "retrieval" and config.model.kind in RETRIEVAL_KINDS and not config.model.run_fn:
        yield Problem(("edge",), "devices do not search an index of items, as the task retrieval does; remove it")
    if config.model.run_fn or config.model.train or config.model.has_forest:
        field = "run_fn" if config.model.run_fn else "train"
        kind = config.model.kind if config.model.has_forest else f"a model.{field} of your own"
        yield Problem(("edge",), f"expected a network of model.kind or model.build, received {kind}; remove edge")
        return
    yield from _check_variants(config)
    yield from _check_operations(config)


def _check_variants(config: Any) -> Iterator[Problem]:
    has_images = any(isinstance(feature.op, Image) for feature in config.features.declared)
    for number, variant in enumerate(config.edge):
        cut = variant.student or config.model
        if variant.channels and (received := _describe_uncuttable(cut)):
            message = f"{received} has no units that can be removed; remove channels, or change the model"
            yield Problem(("edge", number, "channels"), message)
        if config.training.folds and variant.is_trained and not variant.student:
            message = f"{variant.kind} trains one network further, and training.folds makes several; remove one of both"
            yield Problem(("edge", number, "kind"), message)
        if variant.student and variant.student.kind in IMAGE_KINDS and not has_images:
            message = f"{variant.student.kind} reads images; give a column the operation image, or choose another kind"
            yield Problem(("edge", number, "student", "kind"), message)
        if variant.student and variant.student.kind in (*RETRIEVAL_KINDS, ANOMALY_KIND):
            received = variant.student.kind
            message = f"expected a kind of a classification or a regression, received {received}; choose another kind"
            yield Problem(("edge", number, "student", "kind"), message)
        if variant.student and variant.student.loss and variant.student.loss not in LOSSES[config.data.task]:
            message = f"a {config.data.task} has {', '.join(LOSSES[config.data.task])}, received {variant.student.loss}"
            yield Problem(("edge", number, "student", "loss"), message)


def _describe_uncuttable(model: ModelConfig) -> str | None:
    """Describe a network without dense layers or convolutions that can lose units; None for other networks."""
    if model.build:
        return None
    if model.kind in ("linear", "tabm"):
        return model.kind
    # A layer normalization changes all numbers if one of them is left out. A cnn normalizes by group.
    reads_features = model.kind in ("mlp", "wide_deep", "dcn_v2", "dlrm")
    return f"{model.kind} with normalisation: layer" if reads_features and model.normalisation == "layer" else None


def _check_operations(config: Any) -> Iterator[Problem]:
    for feature in config.features.declared:
        if feature.op.op not in EXPORTED_OPS:
            message = f"edge exports {', '.join(EXPORTED_OPS)}, received {feature.op.op}; choose another or remove edge"
            yield Problem(("features", *feature.key), message)
        elif isinstance(feature.op, Embedded) and feature.op.quotient_remainder:
            message = "edge exports embeddings with a row per id, received quotient_remainder; remove it, or edge"
            yield Problem(("features", *feature.key, "quotient_remainder"), message)
        elif isinstance(feature.op, Hashed) and feature.op.min_frequency > 1:
            message = f"edge has no hash with min_frequency, received {feature.op.min_frequency}; remove it, or edge"
            yield Problem(("features", *feature.key), message)
