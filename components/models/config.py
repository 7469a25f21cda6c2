"""The `model` section of the config: the network that reads the features."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from components.base import user_code
from components.base.config_section import Loss, OrAddedName, Section, Texts, check_fields_of_kind
from components.base.names import Build, RunFn, Train
from components.models.registry import MODELS

IMAGE_KINDS = ("cnn", "application")
"""The kinds that need an image."""
HISTORY_KINDS = ("din", "bst")
"""The kinds that need a history."""
LABELS_KINDS = ("esmm", "mmoe", "ple")
"""The kinds that need several labels."""
ITEM_TO_ITEM_KINDS = ("ease", "item_knn")
"""The kinds of a retrieval that consist of one weight per pair of items instead of a network."""
ANOMALY_KIND = "autoencoder"
"""The kind of the task anomaly."""
RETRIEVAL_KINDS = ("two_tower", *ITEM_TO_ITEM_KINDS)
MOST_ITEMS = 20_000
"""Maximum number of items for ITEM_TO_ITEM_KINDS. The matrix of float32 weights then needs 1.6 GB."""
Kind = Literal[
    "wide_deep", "mlp", "dlrm", "dcn_v2", "tabm", "linear", "gbt", "gbt_linear", "ensemble", "cnn", "application",
    "din", "bst", "esmm", "mmoe", "two_tower", "ease", "item_knn", "ple", "final_mlp", "autoencoder",
]  # fmt: skip
_NETWORKS = ("wide_deep", "mlp", "dlrm", "dcn_v2", "tabm", "ensemble", "two_tower", "final_mlp")
_DEEP = (*_NETWORKS, ANOMALY_KIND, *IMAGE_KINDS, *HISTORY_KINDS, *LABELS_KINDS)
FORESTS = ("gbt", "gbt_linear", "ensemble")
"""The kinds that train trees."""
WITHOUT_NETWORK = ("gbt", "gbt_linear", *ITEM_TO_ITEM_KINDS)
"""The kinds that do not train a network."""
_ONLY = {
    "members": ("tabm", "ensemble"),
    "cross_layers": ("dcn_v2",),
    "filters": ("cnn",),
    "attention": ("din", *LABELS_KINDS),
    "experts": ("mmoe", "ple"),
    **dict.fromkeys(("label_experts", "levels"), ("ple",)),
    **dict.fromkeys(("first_gate", "second_gate"), ("final_mlp",)),
    "chain_loss": ("esmm",),
    "heads": ("bst", "final_mlp"),
    "blocks": ("bst",),
    **dict.fromkeys(("item", "top_k"), RETRIEVAL_KINDS),
    **dict.fromkeys(("similarity", "temperature"), ("two_tower",)),
    "regularization": ("ease",),
    **dict.fromkeys(("neighbours", "shrink"), ("item_knn",)),
    **dict.fromkeys(("application", "weights", "frozen_steps"), ("application",)),
    **dict.fromkeys(("hidden", "embedding", "dropout", "normalisation"), _DEEP),
    **dict.fromkeys(("trees", "depth", "shrinkage", "forests"), FORESTS),
    "monotone": ("gbt",),
    "contamination": (ANOMALY_KIND,),
}
"""Field → kinds in which it has an effect. Other fields have an effect in all kinds."""
CONSTRAINTS = ("monotone",)
"""Fields that guarantee a property of the predictions, so that another kind must not drop them silently."""
_ONLY_LOSS: dict[str, tuple[Loss]] = {
    "quantiles": ("quantile",),
    "huber_delta": ("huber",),
    "tweedie_power": ("tweedie",),
    "focal_gamma": ("focal",),
    **dict.fromkeys(("list_column", "list_size"), ("listwise",)),
}
"""Field → loss with which it has an effect."""
_FOREST_LOSSES: tuple[Loss, ...] = ("poisson", "focal")
_CODE_FIELDS = ("run_fn", "build", "train")
"""The fields with a function of the user; a config sets at most one."""


def has_effect(field: str, kind: str) -> bool:
    """Return whether a field of the `model` section has an effect in a kind. Kinds of installed packages may use
    all fields.
    """
    return kind in _ONLY.get(field, (kind,)) or kind not in typing.get_args(Kind)


class ModelConfig(Section):
    """The network, or a user's function that builds it or trains a model, or a user's run_fn."""

    kind: Annotated[Kind, OrAddedName(MODELS)] = "wide_deep"
    """Kind of the model. `wide_deep`: the sum of a linear model of IDs and an mlp (Cheng et al. 2016). `mlp`: hidden
    layers over all features. `dlrm`: dot products between embedded IDs and numbers, plus one weight per ID (Naumov et
    al. 2019). `dcn_v2`: cross layers, which multiply features, parallel to an mlp (Wang et al. 2021). `tabm`: an
    ensemble of mlps that share most weights, the best kind for tables without large vocabularies (Gorishniy et al.
    2024). `linear`: one weight per number and ID. `gbt`: gradient-boosted trees (Friedman 2001), trained by YDF in one
    process. `gbt_linear`: the weighted mean of gbt and, where it helps, a linear model. `ensemble`: the weighted mean
    of gbt, tabm and, where it helps, a linear model. `cnn`: a small residual network for images (He et al. 2016).
    `application`: a network of tf_keras.applications for images. In `cnn` and `application`, the last layer reads the
    pooled image; if there are other features, an mlp reads both. `din`: attention of a candidate over the events of a
    history, then an mlp together with the other features (Zhou et al. 2018). `bst`: self-attention of the candidate and
    the events (Chen et al. 2019). `esmm`: a chain of labels that require the previous label, as a purchase requires a
    click, with shared embeddings (Ma et al. 2018, Entire Space Multi-Task Model). `mmoe`: several labels, which mix the
    same experts with different weights (Ma et al. 2018, Multi-gate Mixture-of-Experts). `ple`: several labels, each
    with separate experts in addition to the shared experts, in several levels (Tang et al. 2020, Progressive Layered
    Extraction). `esmm`, `mmoe` and `ple` read histories as `din` does. `final_mlp`: two mlps over differently weighted
    features, whose outputs are multiplied (Mao et al. 2023, FinalMLP). For the task retrieval: `two_tower`: a network
    for the query and a network for the item,
    whose vectors are close to each other if query and item fit (Yi et al. 2019). `ease`: one weight per pair of items,
    with which the items of a user predict each other, solved in closed form (Steck 2019, Embarrassingly Shallow
    Autoencoders for Sparse Data). `item_knn`: the cosine similarity of the item to the items of the user (Sarwar et al.
    2001). For the task anomaly: `autoencoder`: hidden layers that predict the features of some columns from the other
    columns; a row is unusual if they are improbable (Yin et al. 2024, MCM: Masked Cell Modeling for Anomaly Detection
    in Tabular Data)."""
    hidden: tuple[PositiveInt, ...] = Field(default=(128, 64), min_length=1)
    """Units of the hidden layers, from input to output. `dlrm` uses them twice, for the numbers before the dot products
    and after the dot products. `two_tower` uses them in both towers, where the last layer is the vector, without
    activation."""
    embedding: int = Field(default=16, ge=1, le=4096)
    """Maximum width of an embedding. Columns with few IDs have narrower embeddings, except in `dlrm`."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of hidden units that are dropped in training."""
    normalisation: Literal["none", "layer"] = "none"
    """`layer` applies layer normalization to the hidden layers."""
    members: int = Field(default=8, ge=2, le=256)
    """tabm and ensemble: number of mlps. The time of a step grows with it."""
    trees: int = Field(default=2000, ge=1, le=100_000)
    """gbt, gbt_linear and ensemble: maximum number of trees per logit. Training stops earlier if more trees do not
    lower the loss on the validation part."""
    depth: int | None = Field(default=None, ge=1, le=20)
    """gbt, gbt_linear and ensemble: depth of the trees. By default 4, 6 or 8, whichever has the lowest loss on the
    validation part."""
    shrinkage: float = Field(default=0.05, gt=0, le=1)
    """gbt, gbt_linear and ensemble: factor of every tree. A lower factor needs more trees."""
    forests: int = Field(default=1, ge=1, le=16)
    """gbt, gbt_linear and ensemble: number of forests with different seeds. The model is their mean. More forests lower
    the loss, mostly by up to a hundredth, and need more time for a prediction."""
    monotone: dict[str, Literal["increasing", "decreasing"]] = Field(default_factory=dict)
    """gbt: column of numbers → direction. The prediction never moves against it if only this column changes, as when a
    price must not fall with the size. For a binary label or a regression."""
    cross_layers: int = Field(default=3, ge=1, le=16)
    """dcn_v2: number of cross layers; n cross layers multiply up to n + 1 features."""
    attention: tuple[PositiveInt, ...] = Field(default=(64, 16), min_length=1)
    """din, esmm, mmoe and ple: hidden units of the network that weights an event, given the event and the candidate."""
    chain_loss: Literal["conditional", "product"] = "conditional"
    """esmm: `conditional` is the likelihood of all labels, where a label counts in the rows that have the previous
    label. `product`, as in the paper, is the loss of the products of probabilities in all rows."""
    experts: int = Field(default=4, ge=2, le=64)
    """mmoe: number of experts. ple: number of experts of a level that all labels share. Experts have all layers of
    `hidden` except the last; every label has a separate last layer."""
    label_experts: int = Field(default=2, ge=1, le=64)
    """ple: number of experts of a level that belong to one label; every label has this number."""
    levels: int = Field(default=2, ge=1, le=8)
    """ple: number of levels. The experts of a level read the weighted means of the experts of the previous level. With
    one level, the model is the Customized Gate Control of the paper."""
    heads: int = Field(default=2, ge=1, le=64)
    """bst: number of attention heads. final_mlp: number of equal parts of the mlps' outputs that are multiplied with
    each other. More heads need fewer weights."""
    first_gate: Texts = ()
    """final_mlp: the columns that weight the features of the first mlp, such as the columns of the user. By default,
    every feature has a learned constant as its weight."""
    second_gate: Texts = ()
    """final_mlp: the columns that weight the features of the second mlp, such as the columns of the item."""
    blocks: int = Field(default=1, ge=1, le=12)
    """bst: number of transformer blocks."""
    filters: tuple[PositiveInt, ...] = Field(default=(32, 64, 128), min_length=1)
    """cnn: number of filters of the residual blocks. Every block but the first halves height and width."""
    application: str | None = None
    """application: name in tf_keras.applications, such as EfficientNetB0 or MobileNetV2."""
    weights: str | None = None
    """application: file with the weights without the top (`include_top=False`), as `save_weights` writes it. Nothing is
    downloaded. By default, training begins from scratch."""
    frozen_steps: int = Field(default=0, ge=0)
    """application: number of initial steps in which only the layers above the application are trained."""
    item: tuple[str, ...] = ()
    """two_tower: columns that describe the item. The first column is the ID of the item, with the operation vocab. All
    other feature columns describe the query: the user, the context, and the user's history. ease and item_knn: column
    with the ID of the item. The only other feature is the ID of the user, with the operation vocab."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """two_tower: score of a query and an item. `cosine` normalises both vectors to length 1. `dot` is the dot product
    of the vectors, where the length of an item's vector can express its popularity."""
    temperature: PositiveFloat = 0.1
    """two_tower: divisor of the scores in the loss. A lower temperature separates the nearest items more."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """two_tower, ease and item_knn: number of items that the exported model returns for a query."""
    regularization: PositiveFloat = 250.0
    """ease: penalty of the squared weights. Use a greater penalty for data with fewer interactions per item."""
    neighbours: PositiveInt = 100
    """item_knn: number of most similar items that are used per item. The similarity of other items counts as 0."""
    shrink: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """item_knn: number that is added to the divisor of the cosine. It lowers the similarity of items with few
    interactions."""
    contamination: float = Field(default=0.01, gt=0, lt=0.5)
    """autoencoder: share of the rows that are held out of the training that the output `is_anomaly` marks with 1."""
    loss: Loss | None = None
    """Loss that the training minimizes. By default the crossentropy for a classification and the squared error for a
    regression. `quantile`: the loss of `quantiles` (Koenker & Bassett 1978), for intervals. `huber`: the squared error
    of small errors and the absolute error of large errors (Huber 1964), for labels with outliers. `poisson`: the
    deviance of counts, for non-negative labels; predicts exp(logit). `tweedie`: the deviance of labels with many zeros
    and a long tail (Jørgensen 1987); predicts exp(logit). `focal`: the crossentropy of a classification with less
    weight on rows that are predicted well (Lin et al. 2017). `listwise`: the crossentropy between the labels of a list,
    such as the items that a query has shown, and the softmax of the list's logits (Cao et al. 2007, ListNet), for the
    order of the rows in a list. gbt, gbt_linear and ensemble support `poisson`, and
    `focal` for two classes, without a linear model."""
    quantiles: tuple[float, ...] = Field(default=(0.1, 0.5, 0.9), min_length=1)
    """quantile: quantiles to predict, ascending. The output `prediction` is the quantile nearest to 0.5."""
    huber_delta: PositiveFloat | None = None
    """huber: error, in the label's unit, from which the loss grows linearly. By default the label's standard deviation.
    """
    tweedie_power: float = Field(default=1.5, gt=1, lt=2)
    """tweedie: the variance of the label is proportional to this power of its mean. Near 1, the label resembles a
    count; near 2, a gamma distribution."""
    focal_gamma: float = Field(default=2.0, gt=0, le=10)
    """focal: the crossentropy is multiplied by this power of (1 - probability of the label)."""
    list_column: str | None = None
    """listwise: column whose rows with equal values are a list, such as the query, the session or the user. It does not
    have to be a feature. Rows without a value are not trained on."""
    list_size: int = Field(default=16, ge=2, le=100_000)
    """listwise: maximum number of rows that are compared with each other. A longer list is divided at random, in every
    epoch differently, and a shorter list is padded. `training.batch_size` must be a multiple."""
    run_fn: RunFn | None = None
    """User's run_fn with the interface of TFX, which builds, trains and exports the model: package.module.function, or
    a file such as path/to/module.py."""
    build: Build | None = None
    """User's function (inputs, outputs) → tf_keras.Model or keras.Model of Keras 3, of logits, which only builds the
    network: package.module.function, or path/to/module.py:function."""
    train: Train | None = None
    """User's function (data) → a trained model of scikit-learn, LightGBM, XGBoost, ONNX or TensorFlow, which is
    exported like the models of this project: package.module.function, or path/to/module.py:function. It runs in one
    process, with the transformed rows in memory."""

    @model_validator(mode="after")
    def _check_kind(self) -> ModelConfig:
        if self.kind in typing.get_args(Kind):
            check_fields_of_kind(self, _ONLY, self.kind)
        return self

    @model_validator(mode="after")
    def _check_application(self) -> ModelConfig:
        if self.kind == "application" and self.application is None:
            raise ValueError("kind: application needs the name of one, such as application: EfficientNetB0")
        if self.frozen_steps and self.weights is None:
            raise ValueError("frozen_steps needs weights: layers that have not been trained would be frozen")
        return self

    @model_validator(mode="after")
    def _check_towers(self) -> ModelConfig:
        if self.kind in RETRIEVAL_KINDS and not self.item:
            example = "[item, category]" if self.kind == "two_tower" else "[item]"
            raise ValueError(f"kind: {self.kind} needs the columns of the item, its id first, such as item: {example}")
        return self

    @model_validator(mode="after")
    def _check_loss(self) -> ModelConfig:
        check_fields_of_kind(self, _ONLY_LOSS, self.loss, "loss")
        ascending = all(low < high for low, high in itertools.pairwise((0.0, *self.quantiles, 1.0)))
        if not ascending:
            raise ValueError(f"quantiles: expected ascending numbers between 0 and 1, received {list(self.quantiles)}")
        if (self.loss == "listwise") is not (self.list_column is not None):
            raise ValueError("loss: listwise needs the column of the lists, as in list_column: query; received none")
        if self.has_forest and self.loss not in (None, *_FOREST_LOSSES):
            raise ValueError(
                f"loss: expected one of {', '.join(_FOREST_LOSSES)}, which trees are trained with in {self.kind}, "
                f"received {self.loss}; choose another kind, such as tabm"
            )
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> ModelConfig:
        if self.kind == "final_mlp" and self.hidden[-1] % self.heads:
            raise ValueError(
                f"heads: final_mlp divides the last layer of hidden into equal parts; expected a divisor of "
                f"{self.hidden[-1]}, received {self.heads}; change one of them"
            )
        return self

    @model_validator(mode="after")
    def _check_chain(self) -> ModelConfig:
        if self.kind == "esmm" and self.chain_loss == "conditional" and self.loss is not None:
            raise ValueError(f"chain_loss: conditional does not support loss, received {self.loss}; choose product")
        return self

    @model_validator(mode="after")
    def _check_own_code(self) -> ModelConfig:
        code_fields = [name for name in _CODE_FIELDS if getattr(self, name)]
        # A recorded plan contains all fields, so fields with their default value were not set by the user.
        fields, present = type(self).model_fields, self.model_fields_set - set(code_fields[:1])
        if code_fields[:1] == ["build"]:
            present -= {"loss", *_ONLY_LOSS}
        without_effect = sorted(
            name for name in present if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        )
        if code_fields and without_effect:
            raise ValueError(
                f"{code_fields[0]} builds the model itself, so {', '.join(without_effect)} would have no effect; "
                "remove one"
            )
        return self

    @property
    def function(self) -> str | None:
        """Import path of the user's function that makes the model; None for a model of this project."""
        return self.run_fn or self.build or self.train

    @property
    def has_forest(self) -> bool:
        """Whether trees are trained."""
        return self.kind in FORESTS

    @property
    def holds_out(self) -> bool:
        """Whether rows of the training split are held out, whatever the training section says."""
        return self.has_forest or self.train is not None or self.kind == ANOMALY_KIND

    @property
    def has_network(self) -> bool:
        """Whether a network is trained."""
        return self.kind not in WITHOUT_NETWORK and self.train is None

    @property
    def is_item_to_item(self) -> bool:
        """Whether the model is a matrix with one weight per pair of items."""
        return self.kind in ITEM_TO_ITEM_KINDS

    def list_code(self) -> tuple[str, ...]:
        """Return the modules of a model that is not part of this project, and the file of its initial weights."""
        modules = (user_code.module_of(self.function),) if self.function else MODELS.list_modules(self.kind)
        return (*modules, *([str(Path(self.weights).absolute())] if self.weights else []))

    def with_values(self, values: Mapping[str, Any]) -> ModelConfig:
        """Return the same model with other values. Fields without effect in the new kind get their defaults.

        Raises:
          ValidationError: If a value is not valid for its field, or a field does not exist.
        """
        fields = self.model_dump() | dict(values)
        return ModelConfig.model_validate(
            {name: value for name, value in fields.items() if has_effect(name, fields["kind"])}
        )

    def width(self, ids: int, configured: int | None = None) -> int:
        """Return the width of an embedding, by default a power of two that grows with the root of the number of IDs.

        In dlrm all embeddings have the same width.

        Args:
          ids: Number of IDs of the column.
          configured: Width in the column's config. If None, it follows from `ids`.
        """
        if self.kind == "dlrm":
            return self.embedding
        return configured or min(self.embedding, 2 ** math.ceil(math.log2(max(4.0, math.sqrt(ids)))))
