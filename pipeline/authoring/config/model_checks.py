"""Checks that the kind of the model, the task, the training and the features fit together."""

from __future__ import annotations

from collections.abc import Iterator

from components.base.config_section import LOSSES, Problem
from components.base.names import did_you_mean
from components.evaluator.config import metric
from components.features.config import Vocab
from components.features.image_ops import Image
from components.features.sequence_ops import EventSequence
from components.features.vector_ops import Pretrained
from components.models.config import (
    ANOMALY_KIND,
    FORESTS,
    HISTORY_KINDS,
    IMAGE_KINDS,
    LABELS_KINDS,
    MOST_ITEMS,
    RETRIEVAL_KINDS,
    has_effect,
)
from components.models.table_sizes import list_possible_tables
from components.trainer.config import AugmentationConfig, TrainingConfig
from pipeline.authoring.config.root import Config
from pipeline.authoring.config.yaml_values import Key

_ORDERED = {"z_score", "log", "min_max", "clip", "pass_through", "piecewise_linear", "bucketize", "missing"}
"""Operations after which a greater number is not smaller, and the indicator of a missing value."""
_OF_TRAIN_FUNCTION = {"max_minutes", "validation", "calibration", "seed", "where"}
"""The fields of `training` that have an effect with `model.train`."""


def check_model(config: Config) -> Iterator[Problem]:
    """Yield all problems with combinations of model, task, training and features."""
    yield from _train_function(config)
    yield from _labels(config)
    yield from _several_values(config)
    yield from _anomaly(config)
    yield from _images(config)
    yield from _histories(config)
    yield from _gates(config)
    yield from _retrieval(config)
    yield from _forest(config)
    yield from _mesh(config)
    yield from _tables(config)
    yield from _vectors(config)
    yield from _optimizer(config)
    yield from _gradients(config)
    yield from _calibration(config)
    yield from _loss(config)
    yield from _lists(config)
    yield from _remembered(config)


def _train_function(config: Config) -> Iterator[Problem]:
    """Yield settings that a function `model.train` does not use, and features that it does not receive."""
    if not config.model.train:
        return
    training, fields = config.training, TrainingConfig.model_fields
    for name in sorted(training.model_fields_set - _OF_TRAIN_FUNCTION):
        # A recorded config contains all fields.
        if getattr(training, name) != fields[name].get_default(call_default_factory=True):
            message = "has no effect with model.train, whose function trains in one process by itself; remove it"
            yield Problem(("training", name), message)
    for feature in config.features.declared:
        if isinstance(feature.op, Image):
            message = "model.train receives numbers and ids, no images; remove it, or write model.build"
            yield Problem(("features", *feature.key), message)


def _labels(config: Config) -> Iterator[Problem]:
    """Yield settings that cannot be combined with several labels, and settings that require several labels."""
    labels, kind = config.data.declared_labels, config.model.kind
    names = [label.name for label in labels if label.name]
    for name in config.training.label_weights:
        if name not in names:
            message = f"expected one of data.labels, received {name!r}{did_you_mean(name, names)}"
            yield Problem(("training", "label_weights", name), message)
    if kind in LABELS_KINDS and not config.model.build and (len(labels) < 2 or config.data.task != "binary"):
        received = f"a {config.data.task} task" if names else "data.label"
        message = f"{kind} learns several labels of a binary task: expected data.labels, received {received}"
        yield Problem(("model", "kind"), f"{message}; add them, or choose another kind")
    if not names:
        return
    if config.data.task in ("multiclass", "multilabel", "survival", "retrieval", "anomaly"):
        yield Problem(("data", "task"), "several labels are those of a binary task or a regression; use data.label")
    model = config.model
    user_functions = (
        *((model.run_fn, ("model", "run_fn")), (model.train, ("model", "train"))),
        (config.features.preprocessing_fn, ("features",)),
    )
    refused: list[tuple[object, Key, str]] = [
        *((used, key, "code of your own computes one label") for used, key in user_functions),
        (config.model.has_forest, ("model", "kind"), f"the trees of {kind} learn one label; choose a network"),
        (config.training.class_weights, ("training", "class_weights"), "classes are those of one label"),
        (config.training.augmentation.mixup, ("training", "augmentation", "mixup"), "it blends the rows of one label"),
    ]
    for used, key, why in refused:
        if used:
            yield Problem(key, f"does not go together with data.labels: {why}; remove one of both")


def _several_values(config: Config) -> Iterator[Problem]:
    """Yield settings that cannot be combined with a task whose label has several values per row."""
    model, training, task = config.model, config.training, config.data.task
    if task not in ("multilabel", "survival"):
        return
    has = {"multilabel": "a row has several classes", "survival": "a row has a time instead of a class"}[task]
    trees = ", ".join(kind for kind in _list_kinds(config) if kind in FORESTS)
    kind: Key = ("model", "kind") if model.has_forest else ("tune",)
    refused: list[tuple[object, Key, str]] = [
        (model.run_fn, ("model", "run_fn"), "a run_fn computes the label itself; write model.build"),
        (model.train, ("model", "train"), "a function of your own learns one value per row; write model.build"),
        (config.features.preprocessing_fn, ("features",), "your own code computes the label; declare features.columns"),
        (trees, kind, f"the trees of {trees} learn one value per row; choose networks"),
        (training.class_weights, ("training", "class_weights"), f"{has}; remove it"),
        (training.augmentation.mixup, ("training", "augmentation", "mixup"), "it blends rows of one class; remove it"),
        (
            not config.runtime.is_vectorised("Evaluator"),
            ("runtime", "vectorised"),
            "its metrics require an evaluation in record batches; remove it",
        ),
    ]
    for used, key, why in refused:
        if used:
            yield Problem(key, f"does not go together with the task {task}: {why}")


def _anomaly(config: Config) -> Iterator[Problem]:
    """Yield settings that the task anomaly requires, and settings that cannot be combined with it."""
    model, training = config.model, config.training
    other_kinds = ", ".join(kind for kind in _list_kinds(config) if kind != ANOMALY_KIND)
    if config.data.task != "anomaly":
        if ANOMALY_KIND in _list_kinds(config):
            message = f"{ANOMALY_KIND} is for the task anomaly, received {config.data.task}; change one of them"
            yield Problem(("model", "kind"), message)
        return
    if other_kinds or model.function:
        received = "a function of your own" if model.function else other_kinds
        key: Key = ("tune",) if config.tune and model.kind == ANOMALY_KIND else ("model", "kind")
        yield Problem(key, f"the task anomaly requires {ANOMALY_KIND}, received {received}; change it")
    refused: list[tuple[object, Key, str]] = [
        (
            config.features.preprocessing_fn,
            ("features",),
            "your own code computes the features; declare features.columns",
        ),
        (training.class_weights, ("training", "class_weights"), "the label is not learned; remove it"),
        (config.evaluation.max_importance, ("evaluation", "max_importance"), "there is no loss of labels; remove it"),
        (
            not config.runtime.is_vectorised("Evaluator"),
            ("runtime", "vectorised"),
            "its metrics require an evaluation in record batches; remove it",
        ),
    ]
    refused += [
        (True, ("features", *feature.key), f"{feature.op.op} is not predicted by {ANOMALY_KIND}; remove it")
        for feature in config.features.declared
        if isinstance(feature.op, Image) or getattr(feature.op, "weighting", None)
    ]
    for used, key, why in refused:
        if used:
            yield Problem(key, f"does not go together with the task anomaly: {why}")
    columns = config.features.columns_read
    if len(columns) < 2 and not config.features.preprocessing_fn:
        message = f"expected at least two columns, which predict each other, received {len(columns)}; add a column"
        yield Problem(("features", "columns"), message)


def _list_kinds(config: Config) -> tuple[str, ...]:
    """Return the kind of the model, or the kinds that `tune` tries."""
    return tuple(config.tune.kinds("kind", config.model.kind)) if config.tune else (config.model.kind,)


def _images(config: Config) -> Iterator[Problem]:
    """Yield settings for images without a column of images, and kinds that do not fit the images."""
    kind = config.model.kind
    images = [feature for feature in config.features.declared if isinstance(feature.op, Image)]
    if not images and config.training.augmentation != AugmentationConfig():
        message = "images are changed, and no column has the operation image; remove it"
        yield Problem(("training", "augmentation"), message)
    if not images and config.training.cache == "pixels":
        message = "pixels of images are kept in memory, and no column has the operation image; choose memory"
        yield Problem(("training", "cache"), message)
    if config.training.augmentation.mixup:
        yield from _mixup(config, len(images))
    if kind not in IMAGE_KINDS:
        return
    if not images:
        yield Problem(
            ("model", "kind"), f"{kind} reads images; give a column the operation image, or choose another kind"
        )
    for feature in images:
        if kind == "application" and isinstance(feature.op, Image) and feature.op.channels != 3:
            yield Problem(("features", *feature.key), "application reads images of 3 channels; set channels: 3")
    if config.model.frozen_steps and config.training.weight_decay:
        message = "expected 0 with model.frozen_steps, since it would change the frozen weights; remove one"
        yield Problem(("training", "weight_decay"), message)


def _optimizer(config: Config) -> Iterator[Problem]:
    """Yield a problem if the optimizer would forget the initial weights of a deep network."""
    if config.training.optimizer.kind == "ftrl" and config.model.kind != "linear":
        message = f"ftrl forgets initial weights: expected model.kind linear, received {config.model.kind}; choose adam"
        yield Problem(("training", "optimizer", "kind"), message)


def _histories(config: Config) -> Iterator[Problem]:
    """Yield a problem if the kind reads histories, but none of the features is a suitable history."""
    kind = config.model.kind
    histories = [feature for feature in config.features.declared if isinstance(feature.op, EventSequence)]
    if kind in HISTORY_KINDS and not any(feature.shares or kind == "bst" for feature in histories):
        expected = "a column with the operation sequence" + ("" if kind == "bst" else " and its option of")
        yield Problem(
            ("model", "kind"), f"{kind} reads histories: expected {expected}; add one, or choose another kind"
        )


def _gates(config: Config) -> Iterator[Problem]:
    """Yield gates of final_mlp that do not read a feature."""
    known = {name for feature in config.features.declared for name in feature.columns}
    for field in ("first_gate", "second_gate"):
        for name in getattr(config.model, field):
            if name not in known:
                message = f"expected columns of features.columns, received {name!r}{did_you_mean(name, known)}"
                yield Problem(("model", field), f"{message}; change it")


def _retrieval(config: Config) -> Iterator[Problem]:
    """Yield settings that a retrieval requires, and settings that cannot be combined with it."""
    task, kind = config.data.task, config.model.kind
    if task != "retrieval":
        if kind in RETRIEVAL_KINDS:
            yield Problem(("data", "task"), f"{kind} is for the task retrieval, received {task}; change one of both")
        if config.evaluation.exclude_seen is not None:
            message = f"is for the task retrieval, and data.task is {task}; remove it"
            yield Problem(("evaluation", "exclude_seen"), message)
        return
    if kind not in RETRIEVAL_KINDS or config.model.run_fn:
        field = "run_fn" if config.model.run_fn else "train" if config.model.train else None
        received = f"a model.{field} of your own" if field else kind
        expected = ", ".join(RETRIEVAL_KINDS[:-1]) + f" or {RETRIEVAL_KINDS[-1]}"
        yield Problem(("model", "kind"), f"the task retrieval requires {expected}, received {received}; change it")
        return
    yield from _towers(config)
    if config.model.is_item_to_item:
        yield from _item_to_item(config)
    yield from _exclude_seen(config)
    training, defaults = config.training, TrainingConfig()
    for name, why in (
        ("class_weights", "rows with label 0 do not count"),
        ("folds", "the vectors of several networks cannot be compared"),
    ):
        if getattr(training, name) != getattr(defaults, name):
            yield Problem(("training", name), f"does not fit the task retrieval: {why}; remove it")
    if config.tune:
        message = "the loss of a retrieval depends on the batch and the temperature, so that trials are not comparable"
        yield Problem(("tune",), f"{message}; remove it")
    if not config.runtime.is_vectorised("Evaluator"):
        message = "the metrics of a retrieval require an evaluation in record batches; remove it"
        yield Problem(("runtime", "vectorised"), message)
    for name in config.evaluation.metrics_for(task):
        number = int(metric(name, task).options.get("rows", 0))
        if metric(name, task).recommended and number > config.model.top_k:
            message = f"expected at least {number}, for the metric {name}, received {config.model.top_k}; change one"
            yield Problem(("model", "top_k"), message)


def user_columns(config: Config) -> tuple[str, ...]:
    """Return the columns of a retrieval's query that may contain the user's ID: columns with the operation `vocab`."""
    columns = config.features.columns.items()
    vocabularies = (name for name, ops in columns if any(isinstance(op, Vocab) for op in ops))
    return tuple(name for name in vocabularies if name not in config.model.item)


def _exclude_seen(config: Config) -> Iterator[Problem]:
    """Yield a problem if `exclude_seen` does not select exactly one column that may contain the user's ID."""
    chosen, where = config.evaluation.exclude_seen, ("evaluation", "exclude_seen")
    columns = user_columns(config)
    expected = f"a column of the query with the operation vocab ({', '.join(columns) or 'there is none'})"
    if chosen is True and len(columns) != 1:
        yield Problem(where, f"true expects one such column, and there are {len(columns)}; name {expected}")
    elif isinstance(chosen, str) and chosen not in columns:
        yield Problem(where, f"expected {expected}, received {chosen!r}{did_you_mean(chosen, columns)}")


def _towers(config: Config) -> Iterator[Problem]:
    """Yield columns of the item that are not features, and features that cannot be assigned to one of the towers."""
    items = config.model.item
    read = config.features.columns_read
    for number, name in enumerate(items):
        if name not in read:
            message = f"expected a column of the features, received {name!r}{did_you_mean(name, read)}"
            yield Problem(("model", "item", number), message)
    if items[0] in read and not any(isinstance(op, Vocab) for op in config.features.columns.get(items[0], ())):
        message = f"the id of the item, {items[0]!r}, requires a vocab, by which the items of the index are known"
        yield Problem(("features", "columns", items[0]), message)
    for feature in config.features.declared:
        if isinstance(feature.op, Image):
            yield Problem(("features", *feature.key), f"{config.model.kind} does not read images; remove it")
        elif not set(items).isdisjoint(feature.columns) and not set(feature.columns) <= set(items):
            message = f"combines a column of the item with one of the query: {', '.join(feature.columns)}; remove it"
            yield Problem(("features", *feature.key), message)
    if set(read) <= set(items):
        yield Problem(("model", "item"), "expected a column that is not the item's, for the query; received none")


def _item_to_item(config: Config) -> Iterator[Problem]:
    """Yield features and training settings that kinds with one weight per pair of items do not use."""
    kind, columns = config.model.kind, config.features.columns
    ids = {name: op for name, ops in columns.items() for op in ops if isinstance(op, Vocab)}
    read = [name for feature in config.features.declared for name in feature.columns]
    if len(config.model.item) > 1 or len(read) != 2 or set(read) != ids.keys():
        message = f"{kind} reads an ID of the user and an ID of the item: expected two columns with the operation vocab"
        yield Problem(("features",), f"{message}, received {', '.join(read)}; remove other columns and operations")
    size = ids[config.model.item[0]].size if config.model.item[0] in ids else 0
    if size > MOST_ITEMS:
        message = f"{kind} has a weight for each pair of items: expected a size of at most {MOST_ITEMS:,}"
        key = ("features", "columns", config.model.item[0])
        yield Problem(key, f"{message}, received {size:,}; lower it, or choose two_tower")
    training = config.training
    for name, is_set in (("warm_start", training.warm_start), ("early_stopping", training.early_stopping)):
        if is_set:
            yield Problem(("training", name), f"{kind} is computed in one pass, without training steps; remove it")


def _mixup(config: Config, images: int) -> Iterator[Problem]:
    """Yield settings that cannot be combined with mixup.

    Args:
      config: Config with `training.augmentation.mixup`.
      images: Number of features that are images.
    """
    where = ("training", "augmentation", "mixup")
    if config.data.task == "regression":
        yield Problem(where, "expected the task binary or multiclass, whose losses it blends, received regression")
    if len(config.features.declared) > images:
        yield Problem(where, "expected no features but images, since others are not blended; remove it or them")
    if config.training.folds:
        yield Problem(where, "a blend of rows of two folds has no fold; remove it or training.folds")


def _forest(config: Config) -> Iterator[Problem]:
    """Yield images that trees cannot read, and strategies for kinds that are trained without a network."""
    if config.model.has_forest:
        for feature in config.features.declared:
            if isinstance(feature.op, Image):
                message = f"the trees of {config.model.kind} do not read images; choose a network as model.kind"
                yield Problem(("features", *feature.key), message)
    yield from _monotone(config)
    kind = config.training.strategy.kind
    if not config.model.has_network and not config.model.train and kind != "none":
        message = f"{config.model.kind} is trained in one process, on all its cores: expected none, received {kind}"
        yield Problem(("training", "strategy", "kind"), f"{message}; remove it")


def _monotone(config: Config) -> Iterator[Problem]:
    """Yield directions of columns that trees cannot keep."""
    if config.model.monotone and config.data.task == "multiclass":
        message = "expected a binary label or a regression, because the probabilities of several classes sum to 1"
        yield Problem(("model", "monotone"), f"{message}; remove it")
    for column in config.model.monotone:
        features = [feature for feature in config.features.declared if column in feature.columns]
        others = sorted({feature.op.op for feature in features} - _ORDERED)
        if not features:
            known = {name for feature in config.features.declared for name in feature.columns}
            message = f"expected a column of features.columns, received {column!r}{did_you_mean(column, known)}"
            yield Problem(("model", "monotone", column), message)
        elif others or {feature.op.op for feature in features} == {"missing"}:
            message = (
                f"expected operations that keep the order of its numbers, received {', '.join(others) or 'missing'}"
            )
            yield Problem(("model", "monotone", column), f"{message}; choose from {', '.join(sorted(_ORDERED))}")


def _mesh(config: Config) -> Iterator[Problem]:
    """Yield models whose layers cannot be divided among the devices of a mesh."""
    strategy, model = config.training.strategy, config.model
    if not strategy.has_mesh:
        return
    if model.run_fn:
        yield Problem(("training", "strategy", "kind"), "a run_fn chooses its devices itself; remove mesh")
    if model.run_fn or model.build or strategy.model == 1 or not model.has_network:
        return
    for name, unit, sizes in (("hidden", "units", model.hidden), ("filters", "filters", model.filters)):
        if has_effect(name, model.kind) and any(size % strategy.model for size in sizes):
            message = (
                f"a mesh divides each layer's {unit} among model: {strategy.model} devices; "
                f"expected multiples of {strategy.model}, received {list(sizes)}; change one of them"
            )
            yield Problem(("model", name), message)


def _gradients(config: Config) -> Iterator[Problem]:
    """Yield histograms of gradients of a model that the training loop does not train."""
    model, key = config.model, ("training", "tensorboard", "gradients")
    if model.train:
        return
    if config.training.tensorboard.gradients and (model.run_fn or not model.has_network):
        received = "a run_fn, which writes its own files" if model.run_fn else f"{model.kind}, which has no gradients"
        yield Problem(key, f"expected a network, received {received}; remove it")


def _tables(config: Config) -> Iterator[Problem]:
    """Yield names of tables of IDs that the model cannot have."""
    model = config.model
    if not config.training.strategy.tables:
        return
    has_tables = model.has_network and not (model.run_fn or model.build)
    known = list_possible_tables(model, config.features) if has_tables else set()
    for name in config.training.strategy.tables:
        if name not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else "a model with tables of ids"
            message = f"expected {expected}, received {name!r}{did_you_mean(name, known)}"
            yield Problem(("training", "strategy", "tables", name), f"{message}; `plan` prints the tables")


def _vectors(config: Config) -> Iterator[Problem]:
    """Yield pretrained vectors of embeddings that the model does not have."""
    model = config.model
    if has_effect("embedding", model.kind) and not model.run_fn:
        return
    for feature in config.features.declared:
        if isinstance(feature.op, Pretrained) and feature.op.vectors is not None:
            received = "a run_fn, which builds its own" if model.run_fn else f"{model.kind}, which has none"
            message = f"expected a model with embeddings, received {received}; use the operation vectors instead"
            yield Problem(("features", *feature.key, "vectors"), message)


def _calibration(config: Config) -> Iterator[Problem]:
    """Yield problems with isotonic calibration, which needs a binary label and rows that are held out."""
    if config.training.calibration != "isotonic":
        return
    key = ("training", "calibration")
    if config.data.task not in ("binary", "multilabel"):
        message = f"isotonic is for a binary or a multilabel task, and task is {config.data.task}; choose temperature"
        yield Problem(key, message)
    decides = config.evaluation.decide is not None and config.evaluation.decide.needs_rows
    if not (config.training.early_stopping or config.training.folds or config.model.holds_out or decides):
        yield Problem(key, "isotonic requires rows that training does not see; set training.early_stopping or folds")


def _loss(config: Config) -> Iterator[Problem]:
    """Yield a loss that does not fit the task, or that trees do not support."""
    loss, task = config.model.loss, config.data.task
    fitting = LOSSES[task]
    if loss is not None and loss not in fitting:
        article = "an" if task == "anomaly" else "a"
        message = f"expected {', '.join(fitting)} or none, which fit {article} {task} task, received {loss}"
        yield Problem(("model", "loss"), message)
    elif loss == "focal" and task == "multiclass" and config.model.has_forest:
        message = f"trees are trained with the focal loss of two classes, received a {task} task; remove it"
        yield Problem(("model", "loss"), message)


def _lists(config: Config) -> Iterator[Problem]:
    """Yield settings that cannot be combined with the list-wise loss."""
    model, training = config.model, config.training
    if model.loss != "listwise":
        return
    strategy, rows = training.strategy, model.list_size * training.optimizer.accumulate
    if training.batch_size % rows:
        factor = " times optimizer.accumulate" if training.optimizer.accumulate > 1 else ""
        message = f"expected a multiple of model.list_size{factor}, {rows}, received {training.batch_size}; change it"
        yield Problem(("training", "batch_size"), message)
    refused: list[tuple[object, Key, str]] = [
        (len(config.data.declared_labels) > 1, ("data", "labels"), "it orders rows by one label"),
        (strategy.has_mesh, ("training", "strategy", "kind"), "a mesh divides batches regardless of lists"),
        (strategy.max_workers, ("training", "strategy", "max_workers"), "workers that join would sort all rows again"),
        (training.class_weights, ("training", "class_weights"), "a list contains both classes"),
        (training.folds, ("training", "folds"), "it compares rows of a list, which are in one fold"),
        (training.evaluator, ("training", "evaluator"), "its rows are not sorted by list; see early_stopping"),
        (training.cache in ("none", "pixels"), ("training", "cache"), "the rows of all lists are in memory"),
        (training.augmentation.mixup, ("training", "augmentation", "mixup"), "blended rows are not in one list"),
        (config.evaluation.decide, ("evaluation", "decide"), "its scores are comparable in a list only"),
        (getattr(config, "edge", None), ("edge",), "variants are trained on rows without lists"),
    ]
    for used, key, why in refused:
        if used:
            yield Problem(key, f"does not go together with model.loss listwise: {why}; remove one of them")


def _remembered(config: Config) -> Iterator[Problem]:
    """Yield vocabularies that cannot remember the values of earlier runs."""
    for feature in config.features.declared:
        if not isinstance(feature.op, Vocab) or feature.op.keep_runs is None:
            continue
        key, spans = ("features", *feature.key, "keep_runs"), config.data.spans
        if not config.training.warm_start:
            message = "expected training.warm_start, which starts from the earlier model"
            yield Problem(key, f"{message}; add it, or remove keep_runs")
        elif spans is not None and (spans.latest != 1 or spans.end is not None):
            message = "expected runs that read different rows, as with data.spans {latest: 1}, received several spans"
            yield Problem(key, f"{message}, whose rows would be counted again; change data.spans, or remove keep_runs")
