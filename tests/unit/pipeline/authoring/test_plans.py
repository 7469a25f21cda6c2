"""Tests for the plans of nodes: columns that are never proposed as unneeded, with the reason."""

from __future__ import annotations

from pathlib import Path

from pipeline.authoring.config import load
from pipeline.authoring.plans import evaluation_plan

CONFIG = """\
data:
  path: trips
  split: {by: group, columns: [rider], train: 2, eval: 1}
  label: tips > 0.2 * fare
  task: binary
  weight: weight
features:
  columns:
    fare: z_score
    gender: vocab
    rider: vocab
    city: vocab
    company: vocab
    plain: z_score
    crossed: vocab
    shop: vocab
    past_shops: {sequence: {of: shop}}
    past_times: {time_gaps: {along: past_shops}}
  crosses:
    pair: {columns: [crossed, city], buckets: 10}
evaluation:
  slices: [city]
  max_importance: {company: 0.9}
  thresholds:
    auc: {min: 0.6}
"""


def test_columns_that_the_config_needs_are_never_unneeded(tmp_path: Path) -> None:
    path = tmp_path / "trips.yaml"
    path.write_text(CONFIG)
    assert evaluation_plan(load(str(path)).config).needed_columns == {
        "fare": "the label reads it",
        "gender": "it is a protected attribute of persons",
        "rider": "data.split uses it",
        "city": "evaluation.slices names it",
        "company": "evaluation.max_importance names it",
        "shop": "the feature past_shops_sequence uses it",
        "past_shops": "the feature past_times_time_gaps uses it",
    }
