"""A config is loaded whole, or refused with every problem at once, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.errors import InputError
from pipeline.config import load

CONFIG = """\
data:
  path: trips.csv
  label: tips > 0.2 * fare
features:
  columns:
    fare: z_score
    company: {vocab: {size: 100}}
    miles: [log, {bucketize: {buckets: 20}}]
evaluation:
  thresholds:
    auc: {min: 0.9}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "trips.yaml"
    path.write_text(CONFIG)
    return path


def refused(path: Path, *assignments: str) -> list[str]:
    """The lines of the refusal, without the folder the config lies in."""
    with pytest.raises(InputError) as refusal:
        load(str(path), assignments)
    error = refusal.value
    assert error.exit_code == 2
    return [line.replace(f"{path.parent}/", "") for line in (error.details or (error.headline,))]


def test_a_config_has_its_file_name_and_every_default(config: Path) -> None:
    loaded = load(str(config)).config
    assert loaded.pipeline.name == "trips"
    assert loaded.training.steps == 1000
    assert loaded.model.kind == "wide_deep"
    assert [op.op for op in loaded.features.columns["miles"]] == ["log", "bucketize"]
    assert loaded.features.columns["company"][0].model_dump()["size"] == 100


def test_set_changes_any_field_and_reads_yaml(config: Path) -> None:
    loaded = load(
        str(config), ["training.steps=7", "model.hidden=[8, 4]", "evaluation.slices=[company]", "pipeline.name=other"]
    ).config
    assert (loaded.training.steps, loaded.model.hidden, loaded.evaluation.slices) == (7, (8, 4), (("company",),))
    assert loaded.pipeline.name == "other"


def test_the_config_is_frozen(config: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(str(config)).config.training.steps = 3  # type: ignore[misc]


def test_all_problems_come_at_once_each_with_its_line(config: Path) -> None:
    config.write_text(
        CONFIG.replace("z_score", "z_scor").replace("size: 100", "size: many").replace("auc:", "aux:")
        + "training:\n  stesp: 5\n  batch_size: 0\nmodle:\n  kind: mlp\n"
    )
    assert refused(config) == [
        "trips.yaml:6: features.columns.fare: unknown operation 'z_scor'; did you mean 'z_score'?",
        "trips.yaml:7: features.columns.company.vocab.size: expected a whole number, received 'many'",
        "trips.yaml:11: evaluation.thresholds.aux: unknown metric 'aux'; did you mean 'auc'?",
        "trips.yaml:13: training.stesp: unknown key; did you mean 'steps'?",
        "trips.yaml:14: training.batch_size: expected a value greater than 0, received 0",
        "trips.yaml:15: modle: unknown key; did you mean 'model'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  label: tips > 0.2 * fare\n", "", "trips.yaml:1: data: 'label' has to be given, and is missing"),
        ("tips > 0.2", "__import__('os') > 0.2", "is not understood in the label"),
        ("tips > 0.2 * fare", "1 > 2", "expected an expression over at least one column"),
        ("tips > 0.2 * fare", "tips >", "expected a column or an expression such as tips > 0.2 * fare"),
        ("tips > 0.2 * fare", "fare", "fare is the label itself, so the model would read the answer"),
        ("tips > 0.2 * fare", "fare > miles", "fare, miles make up the whole label"),
        ("{min: 0.9}", "{}", "expected min, max, worse_by or worse_by_fraction, received none of them"),
        ("{min: 0.9}", "{min: 0.9, max: 0.1}", "expected min at most max"),
        ("    auc: {min: 0.9}", "    accuracy: {min: 0.9}", "accuracy does not fit a binary task"),
        (
            "size: 100",
            "siez: 100",
            "trips.yaml:7: features.columns.company.vocab.siez: unknown key; did you mean 'size'?",
        ),
        ("fare: z_score", "fare: 3", "expected an operation such as z_score"),
        ("fare: z_score", "fare: z_score\n    fare: log", "the key 'fare' stands here twice"),
        ("data:", "data: [", "this is no YAML"),
    ],
)
def test_a_wrong_line_is_told(config: Path, old: str, new: str, told: str) -> None:
    assert old in CONFIG
    config.write_text(CONFIG.replace(old, new))
    (line,) = refused(config)
    assert told in line
    assert line.startswith("trips.yaml")


def test_a_wrong_assignment_is_told_as_it_was_typed(config: Path) -> None:
    assert refused(config, "training.steps=lots") == [
        "--set training.steps=lots: training.steps: expected a whole number, received 'lots'"
    ]
    assert "expected section.field=value" in refused(config, "training.steps")[0]


def test_a_missing_config_is_told(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.yaml") == ["no config at none.yaml"]


def test_own_features_need_an_own_model(config: Path) -> None:
    start = CONFIG.index("  columns:")
    end = CONFIG.index("evaluation:")
    config.write_text(CONFIG[:start] + "  preprocessing_fn: my.module.preprocessing_fn\n" + CONFIG[end:])
    (line,) = refused(config)
    assert "give model.run_fn too" in line
    assert load(str(config), ["model.run_fn=my.module.run_fn"]).config.model.run_fn == "my.module.run_fn"
    assert "expected an import path" in refused(config, "model.run_fn=nodots")[0]


def test_the_shipped_configs_are_valid() -> None:
    shipped = sorted(Path("configs").glob("*.yaml"))
    assert [path.stem for path in shipped] == ["clicks", "digits", "taxi"]
    for path in shipped:
        assert load(str(path)).config.pipeline.name == path.stem
