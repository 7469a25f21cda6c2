"""The `model` section: which network reads the features."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from components.base import user_code
from components.base.config_section import Loss, Section
from components.base.names import Build, RunFn
from components.base.registry import validate_name
from components.models.registry import MODELS

IMAGE_KINDS = ("cnn", "application")
"""The kinds that need an image."""
HISTORY_KINDS = ("din", "bst")
"""The kinds that need a history."""
LABELS_KINDS = ("esmm", "mmoe")
"""The kinds that need several labels."""
ITEM_TO_ITEM_KINDS = ("ease", "item_knn")
"""The kinds of a retrieval that have a weight for each pair of items, and no network."""
RETRIEVAL_KINDS = ("two_tower", *ITEM_TO_ITEM_KINDS)
MOST_ITEMS = 20_000
"""Items of ITEM_TO_ITEM_KINDS, whose matrix of float32 weights takes 1.6 GB then."""
Kind = Literal[
    "wide_deep",
    "mlp",
    "dlrm",
    "dcn_v2",
    "tabm",
    "linear",
    "gbt",
    "ensemble",
    "cnn",
    "application",
    "din",
    "bst",
    "esmm",
    "mmoe",
    "two_tower",
    "ease",
    "item_knn",
]
_NETWORKS = ("wide_deep", "mlp", "dlrm", "dcn_v2", "tabm", "ensemble", "two_tower")
_DEEP = (*_NETWORKS, *IMAGE_KINDS, *HISTORY_KINDS, *LABELS_KINDS)
_FORESTS = ("gbt", "ensemble")
_ONLY = {
    "members": ("tabm", "ensemble"),
    "cross_layers": ("dcn_v2",),
    "filters": ("cnn",),
    "attention": ("din", *LABELS_KINDS),
    "experts": ("mmoe",),
    "chain_loss": ("esmm",),
    "heads": ("bst",),
    "blocks": ("bst",),
    **dict.fromkeys(("item", "top_k"), RETRIEVAL_KINDS),
    **dict.fromkeys(("similarity", "temperature"), ("two_tower",)),
    "regularization": ("ease",),
    **dict.fromkeys(("neighbours", "shrink"), ("item_knn",)),
    **dict.fromkeys(("application", "weights", "frozen_steps"), ("application",)),
    **dict.fromkeys(("hidden", "embedding", "dropout", "normalisation"), _DEEP),
    **dict.fromkeys(("trees", "depth", "shrinkage"), _FORESTS),
}
"""Field → the kinds in which it has an effect; other fields have one in all kinds."""
_ONLY_LOSS: dict[str, Loss] = {
    "quantiles": "quantile",
    "huber_delta": "huber",
    "tweedie_power": "tweedie",
    "focal_gamma": "focal",
}
"""Field → the loss in which it has an effect."""
_FOREST_LOSSES: tuple[Loss, ...] = ("poisson", "focal")


def has_effect(field: str, kind: str) -> bool:
    """Whether a field of the model section has an effect in a kind. Kinds of installed packages may use all fields."""
    return kind in _ONLY.get(field, (kind,)) or kind not in typing.get_args(Kind)


def _validate_kind(value: Any, validate_built_in: ValidatorFunctionWrapHandler) -> Any:
    """Accept the kinds of installed packages besides the built-in kinds."""
    return validate_name(value, validate_built_in, MODELS, typing.get_args(Kind))


class ModelConfig(Section):
    """The network; or your own function that builds it; or your own run_fn."""

    kind: Annotated[Kind, WrapValidator(_validate_kind), SerializeAsAny()] = "wide_deep"
    """wide_deep: the sum of a linear model of ids and an mlp (Cheng et al. 2016); mlp: hidden layers over all features;
    dlrm: dot products between embedded ids and numbers, and a weight per id (Naumov et al. 2019); dcn_v2: cross layers,
    which multiply features, parallel to an mlp (Wang et al. 2021); tabm: an ensemble of mlps that share most weights,
    the best one for tables without large vocabularies (Gorishniy et al. 2024); linear: a weight per number and id;
    gbt: gradient-boosted trees (Friedman 2001), trained by YDF in one process; ensemble: the weighted mean of gbt and
    tabm; cnn: a small residual network for images (He et al. 2016); application: a network of tf_keras.applications for
    images. In both, the pooled image is the input of the last layer; if there are other features, both together are the
    input of an mlp; din: attention of a candidate over the events of a history, beside the other features, through an
    mlp (Zhou et al. 2018); bst: self-attention of the candidate and the events (Chen et al. 2019); esmm: labels that
    each require the one before, as a purchase requires a click, with common embeddings (Ma et al. 2018, Entire Space
    Multi-Task Model); mmoe: several labels, each with its own mixture of the same experts (Ma et al. 2018, Multi-gate
    Mixture-of-Experts). Both read histories as din does; two_tower: a network of the query and one of the item, whose
    vectors are near to each other if both fit, for the task retrieval (Yi et al. 2019); ease: a weight for each pair of
    items, by which the items of a user predict each other, for the task retrieval; solved in closed form (Steck 2019,
    Embarrassingly Shallow Autoencoders for Sparse Data); item_knn: the cosine similarity of the item to the items of
    the user, for the task retrieval (Sarwar et al. 2001)."""
    hidden: tuple[PositiveInt, ...] = Field(default=(128, 64), min_length=1)
    """Units of each hidden layer, the first one first. dlrm has them twice: for the numbers before the dot products,
    and after the dot products. In two_tower each tower has them; the last one is the vector, without activation."""
    embedding: int = Field(default=16, ge=1, le=4096)
    """The largest width of an embedding; that of a column with few ids is smaller. In dlrm all have this width."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Rate of hidden units that are dropped in training."""
    normalisation: Literal["none", "layer"] = "none"
    """layer: layer normalization of each hidden layer."""
    members: int = Field(default=8, ge=2, le=256)
    """tabm and ensemble: the number of mlps; the time of a step grows with it."""
    trees: int = Field(default=2000, ge=1, le=100_000)
    """gbt and ensemble: the greatest number of trees for each logit. Fewer are built where more do not lower the loss
    on the validation part."""
    depth: int | None = Field(default=None, ge=1, le=20)
    """gbt and ensemble: the depth of the trees; without it, 4, 6 or 8, whichever has the lowest loss on the validation
    part."""
    shrinkage: float = Field(default=0.05, gt=0, le=1)
    """gbt and ensemble: the factor of each tree; a lower one takes more trees."""
    cross_layers: int = Field(default=3, ge=1, le=16)
    """dcn_v2: the number of cross layers; n of them multiply up to n + 1 features."""
    attention: tuple[PositiveInt, ...] = Field(default=(64, 16), min_length=1)
    """din, esmm and mmoe: the hidden units of the network that weights an event by itself and the candidate."""
    chain_loss: Literal["conditional", "product"] = "conditional"
    """esmm: conditional: the likelihood of all labels, that of each in the rows with the one before it; product: as in
    the paper, the loss of each product of probabilities in all rows."""
    experts: int = Field(default=4, ge=2, le=64)
    """mmoe: the number of experts. They have the layers `hidden` but the last one, which each label has for itself."""
    heads: int = Field(default=2, ge=1, le=64)
    """bst: the number of attention heads."""
    blocks: int = Field(default=1, ge=1, le=12)
    """bst: the number of transformer blocks."""
    filters: tuple[PositiveInt, ...] = Field(default=(32, 64, 128), min_length=1)
    """cnn: the filters of each residual block; each block but the first halves height and width."""
    application: str | None = None
    """application: the name in tf_keras.applications, such as EfficientNetB0 or MobileNetV2."""
    weights: str | None = None
    """application: a file with its weights without the top (`include_top=False`), as `save_weights` writes it. Nothing
    is downloaded; without a file, training begins from scratch."""
    frozen_steps: int = Field(default=0, ge=0)
    """application: steps in which only the layers above it are trained; then all are."""
    item: tuple[str, ...] = ()
    """two_tower: the columns that describe the item. The first one is its id, with the operation vocab. All other
    columns of the features describe the query: the user, the context, and the user's history. ease and item_knn: the
    column of the item's id. The only other feature is the user's ID, with the operation vocab."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """two_tower: the score of a query and an item. cosine: both vectors have length 1; dot: the dot product of the
    vectors as they are, which can say how popular an item is by its length."""
    temperature: PositiveFloat = 0.1
    """two_tower: what the loss divides the scores by. A lower one separates the nearest items more."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """two_tower, ease and item_knn: the number of items that the exported model returns for a query."""
    regularization: PositiveFloat = 250.0
    """ease: the penalty of the squared weights. A greater one suits data with fewer interactions for each item."""
    neighbours: PositiveInt = 100
    """item_knn: the number of most similar items whose similarity to an item counts; that of others is 0."""
    shrink: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """item_knn: what is added to the divisor of the cosine, which lowers the similarity of items with few
    interactions."""
    loss: Loss | None = None
    """What the training minimizes; if it is not set, the crossentropy of a classification and the squared error of a
    regression. quantile: the loss of `quantiles` (Koenker & Bassett 1978), for intervals; huber: the squared error of
    small errors and the absolute one of large errors (Huber 1964), for labels with outliers; poisson: the deviance of
    counts, for labels from 0 on, predicts exp(logit); tweedie: the deviance of labels with many zeros and a long tail
    (Jørgensen 1987), predicts exp(logit); focal: the crossentropy of a classification with less weight on rows that are
    predicted well (Lin et al. 2017). gbt and ensemble have poisson, and focal of two classes."""
    quantiles: tuple[float, ...] = Field(default=(0.1, 0.5, 0.9), min_length=1)
    """quantile: the quantiles to predict, ascending. The output `prediction` is the one nearest to 0.5."""
    huber_delta: PositiveFloat | None = None
    """huber: the error, in the label's unit, from which the loss grows linearly; without it, the label's standard
    deviation."""
    tweedie_power: float = Field(default=1.5, gt=1, lt=2)
    """tweedie: the variance of the label is proportional to this power of its mean; near 1 as a count, near 2 as a
    gamma distribution."""
    focal_gamma: float = Field(default=2.0, gt=0, le=10)
    """focal: the crossentropy is multiplied by this power of 1 - the probability of the label."""
    run_fn: RunFn | None = None
    """Your own run_fn, with the interface of TFX: it builds, trains and exports the model.
    package.module.function, or a file such as path/to/module.py."""
    build: Build | None = None
    """Your own function, (inputs, outputs) → tf_keras.Model of logits, which builds the network; the rest does not
    change. package.module.function, or path/to/module.py:function."""

    @model_validator(mode="after")
    def _check_kind(self) -> ModelConfig:
        fields = type(self).model_fields
        for name, kinds in _ONLY.items():
            if getattr(self, name) != fields[name].default and not has_effect(name, self.kind):
                raise ValueError(f"{name} has no effect in {self.kind}, only in {', '.join(kinds)}; remove it")
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
        fields = type(self).model_fields
        for name, loss in _ONLY_LOSS.items():
            if getattr(self, name) != fields[name].default and self.loss != loss:
                raise ValueError(f"{name} has an effect with loss: {loss}, received {self.loss or 'none'}; remove it")
        ascending = all(low < high for low, high in itertools.pairwise((0.0, *self.quantiles, 1.0)))
        if not ascending:
            raise ValueError(f"quantiles: expected ascending numbers between 0 and 1, received {list(self.quantiles)}")
        if self.has_forest and self.loss not in (None, *_FOREST_LOSSES):
            raise ValueError(
                f"loss: expected one of {', '.join(_FOREST_LOSSES)}, which trees are trained with in {self.kind}, "
                f"received {self.loss}; choose another kind, such as tabm"
            )
        return self

    @model_validator(mode="after")
    def _check_chain(self) -> ModelConfig:
        if self.kind == "esmm" and self.chain_loss == "conditional" and self.loss is not None:
            raise ValueError(f"chain_loss: conditional has no other loss, received {self.loss}; choose product")
        return self

    @model_validator(mode="after")
    def _check_own_code(self) -> ModelConfig:
        own = "run_fn" if self.run_fn else "build"
        # A recorded plan contains all fields, so fields with their default do not count.
        fields, present = type(self).model_fields, self.model_fields_set - {own}
        if own == "build":
            present -= {"loss", *_ONLY_LOSS}
        without_effect = sorted(name for name in present if getattr(self, name) != fields[name].default)
        if getattr(self, own) and without_effect:
            raise ValueError(
                f"{own} builds the model itself, so {', '.join(without_effect)} would have no effect; remove one"
            )
        return self

    @property
    def has_forest(self) -> bool:
        """Whether trees are trained."""
        return self.kind in _FORESTS

    @property
    def has_network(self) -> bool:
        """Whether a network is trained."""
        return self.kind != "gbt" and not self.is_item_to_item

    @property
    def is_item_to_item(self) -> bool:
        """Whether the model is a matrix with a weight for each pair of items."""
        return self.kind in ITEM_TO_ITEM_KINDS

    def modules(self) -> tuple[str, ...]:
        """Return the modules of a model that is not part of this project: the user's, or an installed package's."""
        function = self.run_fn or self.build
        return (user_code.module_of(function),) if function else MODELS.list_modules(self.kind)

    def with_values(self, values: Mapping[str, Any]) -> ModelConfig:
        """Return the same model with other values; fields that have no effect in its kind get their defaults.

        Raises:
          ValidationError: a value is not valid for its field, or there is no such field.
        """
        fields = self.model_dump() | dict(values)
        return ModelConfig.model_validate(
            {name: each for name, each in fields.items() if has_effect(name, fields["kind"])}
        )

    def width(self, ids: int, own: int | None = None) -> int:
        """Return the width of an embedding: the column's width, or a power of two that grows with the root of its ids.

        In dlrm all embeddings have the same width.

        Args:
          ids: the number of ids of the column.
          own: the width in the column's config; None if it is not set.
        """
        if self.kind == "dlrm":
            return self.embedding
        return own or min(self.embedding, 2 ** math.ceil(math.log2(max(4.0, math.sqrt(ids)))))
