"""Tests that the planned sizes of tables equal the tables of the built model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models import two_tower
from components.models.build import build
from components.models.config import ANOMALY_KIND, IMAGE_KINDS, ModelConfig
from components.models.inputs import inputs
from components.models.layers import Table
from components.models.registry import MODELS
from components.models.table_sizes import TableSize, table_sizes

FEATURES = FeaturesConfig.model_validate(
    {
        "columns": {
            "price": ["z_score", {"bucketize": {"buckets": 9}}],
            "user": {"hash": {"buckets": 5000, "quotient_remainder": 70}},
            "item": {"vocab": {"size": 100, "oov_buckets": 3}},
            "site": {"hash": {"buckets": 5000, "min_frequency": 2}},
            "words": {"text": {"vocabulary": 30, "max_values": 4, "quotient_remainder": 4, "composition": "sum"}},
            "past": {"sequence": {"of": "item", "max_values": 3}},
            "past_users": {"sequence": {"of": "user", "max_values": 3}},
        },
        "crosses": {"both": {"columns": ["item", "site"], "buckets": 77}},
    }
)
VOCABULARY_SIZES = {"item_vocab": 40, "site_hash": 600, "words_text": 30}
PLAN = FeaturePlan(features=FEATURES, labels=(Label("clicked"),), task="binary")


def config_of_kind(kind: str) -> ModelConfig:
    return ModelConfig(kind=kind, **({"item": ("item",)} if kind == "two_tower" else {}))


def plan_tables(kind: str, outputs: int = 1) -> list[TableSize]:
    return table_sizes(
        config_of_kind(kind), FEATURES, lambda feature: VOCABULARY_SIZES[feature.vocabulary], outputs=outputs
    )


LONG = {"bst", "din", "dlrm", "esmm"}
KINDS = [
    pytest.param(kind, marks=pytest.mark.extended if kind in LONG else ()) for kind in MODELS if kind not in IMAGE_KINDS
]


@pytest.mark.parametrize("kind", KINDS)
def test_planned_sizes_equal_the_sizes_of_the_variables(kind: str) -> None:
    outputs = two_tower.outputs(config_of_kind(kind)) if kind == "two_tower" else 1 if kind == ANOMALY_KIND else 2
    model = build(config_of_kind(kind), inputs(PLAN, VOCABULARY_SIZES.__getitem__), outputs)
    tables = [layer for layer in model.submodules if isinstance(layer, Table)]
    variables = [variable for table in tables for variable in table.variables]
    assert sum(table.weights for table in plan_tables(kind, 2)) == sum(
        4 * int(np.prod(variable.shape)) for variable in variables
    )
    assert not any(table.most for table in plan_tables(kind))


def rows(**options: Any) -> dict[str, tuple[int, bool]]:
    sizes = table_sizes(ModelConfig(kind="mlp"), FEATURES, lambda feature: None, **options)
    return {size.feature: (size.rows, size.most) for size in sizes if size.kind == "embedding"}


def test_unknown_vocabularies_count_with_their_maximum_size_or_as_empty() -> None:
    greatest, least = rows(), rows(most=False)
    assert greatest["item_vocab"] == (100 + 4, True)
    assert greatest["site_hash"] == (5000 + 2, True)
    assert (least["item_vocab"], least["site_hash"]) == ((4, False), (2, False))
    assert greatest["user_hash"] == least["user_hash"] == (72, False)


def test_custom_networks_and_forests_do_not_have_known_tables() -> None:
    for model in (ModelConfig(build="own.build"), ModelConfig(kind="gbt")):
        assert table_sizes(model, FEATURES, lambda feature: 5) == []
