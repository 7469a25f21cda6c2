"""Tests for the configs of retrieval models: required fields and fields that are not supported."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError
from components.trainer.plan import ExcludeSeen
from pipeline.authoring.config import load
from pipeline.authoring.plans import evaluation_plan, training_plan

CONFIG = "configs/retrieval.yaml"


def test_example_config_is_valid(tmp_path: Path) -> None:
    config = load(CONFIG).config
    assert config.model.item == ("item", "category", "price")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["data.task=binary"], "two_tower is for the task retrieval, received binary"),
        (["model={kind: mlp}"], "the task retrieval requires two_tower, ease or item_knn, received mlp"),
        (["model={run_fn: mine.py}"], "ease or item_knn, received a model.run_fn of your own"),
        (["model.item=[]"], "two_tower needs the columns of the item, its id first"),
        (["model.item=[item, categry]"], "model.item.1: expected a column of the features, received 'categry'"),
        (["model.item=[price]"], "the id of the item, 'price', requires a vocab"),
        (["features.columns.item={hash: {buckets: 100}}"], "requires a vocab"),
        (
            ["features.crosses={both: {columns: [user, item], buckets: 100}}"],
            "combines a column of the item with one of the query: user, item",
        ),
        (["features.columns={item: vocab}", "model.item=[item]"], "expected a column that is not the item's"),
        (["training.class_weights=balanced"], "rows with label 0 do not count"),
        (["training.folds=3"], "the vectors of several networks cannot be compared"),
        (["edge=[{}]"], "devices do not search an index"),
        (["tune={embedding: {choice: [8, 16]}}"], "trials are not comparable"),
        (["monitor={}"], "have no item to compare"),
        (["runtime.vectorised=false"], "require an evaluation in record batches"),
        (["model.top_k=5"], "expected at least 10, for the metric coverage_at_10, received 5"),
        (["evaluation.thresholds={auc: {min: 0.5}}"], "auc does not fit a retrieval task; mrr, recall_at_10"),
        (["evaluation.thresholds={popularity_at_10: {worse_by: 3}}"], "neither a higher nor a lower value is better"),
        (["model.loss=focal"], "fit a retrieval task, received focal"),
        (["training.calibration=isotonic"], "isotonic is for a binary or a multilabel task, and task is retrieval"),
        (["evaluation.metrics=[group_ndcg_at_10]"], "group_ndcg_at_10 requires groups of rows; set evaluation.group"),
        (["evaluation.group=user", "evaluation.metrics=[gauc]"], "gauc does not fit a retrieval task"),
        (
            ["evaluation.exclude_seen=true"],
            "true expects one such column, and there are 0; name a column of the query with the operation vocab",
        ),
        (
            [
                "features.columns={user: vocab, item: vocab, country: vocab}",
                "model.item=[item]",
                "evaluation.exclude_seen=countrry",
            ],
            "with the operation vocab (user, country), received 'countrry'",
        ),
    ],
)
def test_unsupported_fields_are_rejected(assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(CONFIG, assignments)
    assert message in str(raised.value)


def test_groups_have_separate_default_metrics() -> None:
    section = load(CONFIG, ["evaluation.group=user"]).config.evaluation
    assert section.metrics_for("retrieval")[-2:] == ("group_recall_at_10", "group_ndcg_at_10")
    plan = evaluation_plan(load(CONFIG, ["evaluation.group=user"]).config)
    assert plan.find_group(plan.labels[0]) == "user"


def test_other_kinds_reject_items() -> None:
    with pytest.raises(InputError, match="item: expected kind two_tower, ease or item_knn, received esmm; remove item"):
        load("configs/sessions.yaml", ["model.item=[item]"])


def test_seen_items_are_excluded_by_a_vocabulary_of_the_query() -> None:
    assert training_plan(load(CONFIG).config).exclude_seen is None, "the query has no column with a vocabulary"
    fields = ["features.columns={user: vocab, item: vocab, country: vocab}", "model.item=[item]"]

    def plan_exclude_seen(*assignments: str) -> ExcludeSeen | None:
        return training_plan(load(CONFIG, [*fields, *assignments]).config).exclude_seen

    assert plan_exclude_seen() == ExcludeSeen(columns=("user", "country"), required=False)
    assert plan_exclude_seen("evaluation.exclude_seen=user") == ExcludeSeen(columns=("user",), required=True)
    assert plan_exclude_seen("evaluation.exclude_seen=false") is None
    assignments = ["features.columns={user: vocab, item: vocab}", "evaluation.exclude_seen=true"]
    assert plan_exclude_seen(*assignments) == ExcludeSeen(columns=("user",), required=True)
    split_within_time = "data.split={by: within_time, columns: [user, time], train: 4, eval: 1}"
    assert plan_exclude_seen(split_within_time) == ExcludeSeen(columns=("user",), required=False), (
        "the users are known from the split"
    )


ITEM_TO_ITEM = ["features.columns={user: vocab, item: vocab}", "model={kind: ease, item: [item]}", "training={}"]


def test_item_to_item_kinds_read_a_user_and_an_item() -> None:
    for kind in ("ease", "item_knn"):
        config = load(CONFIG, [*ITEM_TO_ITEM, f"model.kind={kind}"]).config
        assert not config.model.has_network
        assert training_plan(config).exclude_seen == ExcludeSeen(columns=("user",), required=False)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["features.columns={user: vocab, item: vocab, price: log}"],
            "received user, item, price; remove",
        ),
        (["features.columns={item: vocab}"], "expected two columns with the operation vocab, received item"),
        (["features.columns={item: vocab, price: log}"], "expected two columns with the operation vocab"),
        (["features.columns={user: vocab, item: {vocab: {size: 20001}}}"], "at most 20,000, received 20,001"),
        (["training.strategy={kind: multi_worker, workers: 2}"], "ease is trained in one process"),
        (["training.strategy={kind: mirrored}"], "ease is trained in one process"),
        (["training.warm_start=true"], "ease is computed in one pass"),
        (["training.early_stopping=2"], "ease is computed in one pass"),
        (["model.similarity=dot"], "similarity: expected kind two_tower, received ease; remove similarity"),
        (["model.neighbours=5"], "neighbours: expected kind item_knn, received ease; remove neighbours"),
        (["model.hidden=[8]"], "received ease; remove hidden"),
        (["model.item=[]"], "ease needs the columns of the item"),
        (["data.task=binary"], "ease is for the task retrieval, received binary"),
    ],
)
def test_fields_that_item_to_item_kinds_do_not_use_are_rejected(assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(CONFIG, [*ITEM_TO_ITEM, *assignments])
    assert message in str(raised.value)


def test_other_tasks_reject_seen_items() -> None:
    with pytest.raises(InputError, match=r"is for the task retrieval, and data\.task is binary"):
        load("configs/sessions.yaml", ["evaluation.exclude_seen=user"])
