"""Tests for loading configs. An invalid config is rejected, and all its problems are reported with their lines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from components.base.errors import InputError
from components.features.config import FeaturesConfig
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns, check_dtypes
from tests.support.data.shipped_configs import CONFIGS
from tests.support.runs.command import ROOT

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


def list_errors(path: Path, *assignments: str) -> list[str]:
    """Load an invalid config, and return the lines of the error without the folder of the config."""
    with pytest.raises(InputError) as refusal:
        load(str(path), assignments)
    error = refusal.value
    assert error.exit_code == 2
    return [line.replace(f"{path.parent}/", "") for line in (error.details or (error.headline,))]


def test_config_has_the_name_of_its_file_and_defaults(config: Path) -> None:
    loaded = load(str(config)).config
    assert loaded.pipeline.name == "trips"
    assert loaded.training.steps == 1000
    assert loaded.model.kind == "wide_deep"
    assert [op.op for op in loaded.features.columns["miles"]] == ["log", "bucketize"]
    assert loaded.features.columns["company"][0].model_dump()["size"] == 100


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("my-trips_2", "my-trips_2"),
        ("Trips", "trips"),
        ("my trips (2024)", "my_trips_2024_"),
        ("_trips", "trips"),
        ("Größe", "grosse"),
        ("価格", "u4fa1u683c"),
        ("x" * 80, "x" * 63),
    ],
)
def test_name_of_any_file_becomes_a_valid_name(config: Path, stem: str, name: str) -> None:
    assert load(str(config.rename(config.with_name(f"{stem}.yaml")))).config.pipeline.name == name


def test_assignments_change_fields_and_are_parsed_as_yaml(config: Path) -> None:
    loaded = load(
        str(config), ["training.steps=7", "model.hidden=[8, 4]", "evaluation.slices=[company]", "pipeline.name=other"]
    ).config
    assert (loaded.training.steps, loaded.model.hidden, loaded.evaluation.slices) == (7, (8, 4), (("company",),))
    assert loaded.pipeline.name == "other"


def test_config_is_immutable(config: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(str(config)).config.training.steps = 3  # type: ignore[misc]


def test_all_problems_are_reported_with_their_lines(config: Path) -> None:
    config.write_text(
        CONFIG.replace("z_score", "z_scor").replace("size: 100", "size: many").replace("auc:", "aux:")
        + "training:\n  stesp: 5\n  batch_size: 0\nmodle:\n  kind: mlp\n"
    )
    assert list_errors(config) == [
        "trips.yaml:6: features.columns.fare: unknown operation 'z_scor'; did you mean 'z_score'?",
        "trips.yaml:7: features.columns.company.vocab.size: expected a whole number, received 'many'",
        "trips.yaml:11: evaluation.thresholds.aux: unknown metric 'aux'; did you mean 'auc'?",
        "trips.yaml:13: training.stesp: unknown key; did you mean 'steps'?",
        "trips.yaml:14: training.batch_size: expected a value greater than 0, received 0",
        "trips.yaml:15: modle: unknown key; did you mean 'model'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "  label: tips > 0.2 * fare\n",
            "",
            "trips.yaml:1: data: expected a label, or several labels by name, received neither",
        ),
        ("tips > 0.2", "__import__('os') > 0.2", "expected columns, numbers, strings"),
        ("tips > 0.2 * fare", "1 > 2", "expected an expression over at least one column"),
        ("tips > 0.2 * fare", "tips >", "expected a column or an expression such as tips > 0.2 * fare"),
        ("tips > 0.2 * fare", "fare", "fare is the label itself, so the model would read the label"),
        ("tips > 0.2 * fare", "fare > miles", "fare, miles make up the whole label"),
        ("{min: 0.9}", "{}", "expected min, max, worse_by or worse_by_fraction, received none of them"),
        ("{min: 0.9}", "{min: 0.9, max: 0.1}", "expected min at most max"),
        ("    auc: {min: 0.9}", "    accuracy: {min: 0.9}", "accuracy does not fit a binary task"),
        (
            "size: 100",
            "siez: 100",
            "trips.yaml:7: features.columns.company.vocab.siez: unknown key; did you mean 'size'?",
        ),
        ("fare: z_score", "fare: {clip: {}}", "expected low, high or both, received neither"),
        ("fare: z_score", "fare: {clip: {low: 2, high: 2}}", "expected low below high, received 2 and 2"),
        ("fare: z_score", "fare: 3", "expected an operation such as z_score"),
        ("fare: z_score", "fare: z_score\n    fare: log", "the key 'fare' appears twice"),
        (
            "fare: z_score",
            "fare: [log, z_score, log]",
            "features.columns.fare.2: another operation also makes a feature 'fare_log'",
        ),
        ("fare: z_score", "fare: {cyclical: {period: 0}}", "fare.cyclical.period: expected a value greater than 0"),
        ("fare: z_score", "fare: {text: {buckets: 5, vocabulary: 5}}", "expected buckets or vocabulary, received both"),
        ("fare: z_score", "fare: {date_parts: [weekdy]}", "received 'weekdy'; did you mean 'weekday'?"),
        ("fare: z_score", "fare: {date_parts: []}", "fare.date_parts: expected at least one part, received none"),
        (
            "fare: z_score",
            "fare: {date_parts: [hour, day, hour]}",
            "another operation also makes a feature 'fare_hour'",
        ),
        ("fare: z_score", "fare: {date_parts: {parts: [day, hour], unit: days}}", "received days"),
        ("fare: z_score", "fare: {date_part: {part: minute, unit: days}}", "received days"),
        ("fare: z_score", "fare: {date_part: {part: year, embedding: 8}}", "year is a number and has no embedding"),
        (
            "fare: z_score",
            "fare: [{date_part: {part: day}}, {date_parts: [day]}]",
            "fare.1.date_parts: another operation",
        ),
        (
            "fare: z_score",
            "fare: {hash: {buckets: 9, embedding: 0}}",
            "embedding: expected a value greater than or equal",
        ),
        ("data:", "data: [", "this is not valid YAML"),
    ],
)
def test_invalid_field_is_reported_with_its_line(config: Path, old: str, new: str, message: str) -> None:
    assert old in CONFIG
    config.write_text(CONFIG.replace(old, new))
    (line,) = list_errors(config)
    assert message in line
    assert line.startswith("trips.yaml")


@pytest.mark.parametrize(
    ("cross", "message"),
    [
        ("place: {columns: [fare], buckets: 9}", "place: expected two columns or more, each once, received fare"),
        (
            "place: {columns: [fare, fare], buckets: 9}",
            "place: expected two columns or more, each once, received fare, fare",
        ),
        ("place: {columns: [fare, miles]}", "features.crosses.place: 'buckets' is required and missing"),
        ("place: {colums: [fare, miles], buckets: 9}", "place.colums: unknown key; did you mean 'columns'?"),
        (
            "a place: {columns: [fare, miles], buckets: 9}",
            "expected a name of letters, digits and _, received 'a place'",
        ),
        ("place: {columns: [tips, company], buckets: 9}", "tips, fare make up the whole label 'tips > 0.2 * fare'"),
    ],
)
def test_invalid_cross_is_reported(config: Path, cross: str, message: str) -> None:
    config.write_text(CONFIG.replace("features:\n", f"features:\n  crosses:\n    {cross}\n"))
    assert message in " | ".join(list_errors(config))


def test_features_are_named_after_their_columns_and_operations(config: Path) -> None:
    config.write_text(
        CONFIG.replace("fare: z_score", "fare: [log, {date_parts: {parts: [year, hour], embedding: 4}}]").replace(
            "features:\n", "features:\n  crosses: {place: {columns: [company, street], buckets: 9}}\n"
        )
    )
    features = load(str(config)).config.features
    assert {feature.name: feature.columns for feature in features.declared} == {
        "fare_log": ("fare",),
        "fare_year": ("fare",),
        "fare_hour": ("fare",),
        "company_vocab": ("company",),
        "miles_log": ("miles",),
        "miles_bucketize": ("miles",),
        "place_cross": ("company", "street"),
    }
    assert features.columns_read == ("fare", "company", "miles", "street")
    assert FeaturesConfig.model_validate_json(features.model_dump_json()) == features


def test_condition_on_rows_is_checked_before_a_run(config: Path) -> None:
    config.write_text(CONFIG.replace("data:\n", "data:\n  where: fare > 0 and compny in ('A', 'B')\n"))
    columns = ["tips", "fare", "company", "miles", "street"]
    (problem,) = check_columns(load(str(config)).config, columns)
    assert problem.key == ("data", "where", "compny")
    assert problem.message == "the data has no column 'compny'; did you mean 'company'?"
    config.write_text(CONFIG.replace("data:\n", "data:\n  sample: {label: {0: 0.1}}\n"))
    assert not check_columns(load(str(config)).config, columns)
    (problem,) = check_columns(load(str(config)).config, [*columns, "sampling_weight"])
    assert problem.message == "adds the column 'sampling_weight', which the data has already"
    for where, message in {
        "fare + 1": "expected a condition such as fare > 0, received 'fare + 1'",
        "fare > 0 and fare == 'x'": "expected either numbers or strings beside 'fare'",
    }.items():
        config.write_text(CONFIG.replace("data:\n", f"data:\n  where: {where}\n"))
        (error,) = list_errors(config)
        assert message in error
    config.write_text(
        CONFIG.replace("data:\n", "data:\n  where: riders > 1\n  columns: [tips, fare, company, miles]\n")
    )
    (error,) = list_errors(config)
    assert "data.where: expected columns that data.columns names, received 'riders'; add it there" in error


def test_columns_of_a_cross_must_exist_and_must_not_contain_floats(config: Path) -> None:
    config.write_text(
        CONFIG.replace("features:\n", "features:\n  crosses:\n    place: {columns: [company, stret], buckets: 9}\n")
    )
    loaded = load(str(config))
    columns = ["tips", "fare", "company", "miles", "street"]
    (problem,) = check_columns(loaded.config, columns)
    assert problem.key == ("features", "crosses", "place", "columns", 1)
    assert problem.message == "the data has no column 'stret'; did you mean 'street'?"
    (problem,) = check_dtypes(loaded.config, {"company": "bytes", "stret": "float"})
    assert problem.key == ("features", "crosses", "place")
    assert problem.message == "cross takes text or bytes or whole numbers, and 'stret' holds numbers"


@pytest.mark.parametrize(
    ("label", "columns", "message"),
    [
        ("terms and conditions", ["terms_and_conditions"], "'terms and conditions'; here its name is 'terms_and_cond"),
        ("is it spam?", ["is_it_spamm"], "'is_it_spam'; did you mean 'is_it_spamm'?"),
        ("is it spam?", ["is_it_spam"], ""),
        ("class == 1", ["class"], ""),
    ],
)
def test_name_is_suggested_for_an_unknown_header(config: Path, label: str, columns: list[str], message: str) -> None:
    config.write_text(CONFIG.replace("tips > 0.2 * fare", label))
    problems = check_columns(load(str(config)).config, [*columns, "fare", "company", "miles"])
    assert {message in problem.message for problem in problems} == ({True} if message else set())


def test_invalid_dtype_of_date_parts_is_reported_once(config: Path) -> None:
    config.write_text(CONFIG.replace("fare: z_score", "fare: {date_parts: [day, hour]}"))
    (problem,) = check_dtypes(load(str(config)).config, {"fare": "float"})
    assert problem.key == ("features", "columns", "fare", 0, "date_parts")


def test_dlrm_rejects_embedding_sizes_of_single_features(config: Path) -> None:
    config.write_text(CONFIG.replace("size: 100", "size: 100, embedding: 4"))
    assert load(str(config)).config.model.width(100, 4) == 4
    config.write_text(f"{config.read_text()}model: {{kind: dlrm}}\n")
    (line,) = list_errors(config)
    assert line.startswith("trips.yaml:7: features.columns.company.vocab.embedding: with dlrm, all vectors")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "hidden: [16, 6]",
            "model.hidden: a mesh divides each layer's units among model: 4 devices; expected multiples",
        ),
        (
            "kind: cnn, filters: [4, 6]",
            "model.filters: a mesh divides each layer's filters among model: 4 devices; expected multiples of 4",
        ),
        ("kind: gbt", "training.strategy.kind: gbt is trained in one process, on all its cores: expected none"),
    ],
)
def test_mesh_divides_layers(config: Path, model: str, message: str) -> None:
    mesh = "training: {strategy: {kind: mesh, model: 4}}"
    config.write_text(f"{CONFIG}model: {{{model}}}\n{mesh}\n")
    assert any(line.partition(": ")[2].startswith(message) for line in list_errors(config))
    for valid in ("hidden: [16, 8]", "kind: linear"):
        config.write_text(f"{CONFIG}model: {{{valid}}}\n{mesh}\n")
        assert load(str(config)).config.training.strategy.model == 4


def test_gate_reads_columns_of_features(config: Path) -> None:
    config.write_text(f"{CONFIG}model: {{kind: final_mlp, first_gate: company, second_gate: [compani]}}\n")
    [line] = list_errors(config)
    expected = "expected columns of features.columns, received 'compani'; did you mean 'company'?; change it"
    assert f"model.second_gate: {expected}" in line
    config.write_text(f"{CONFIG}model: {{kind: final_mlp, first_gate: company}}\n")
    assert load(str(config)).config.model.first_gate == ("company",)


@pytest.mark.parametrize(
    ("model", "received"),
    [("{kind: gbt}", "gbt, which has no gradients"), ("{run_fn: theirs.run_fn}", "a run_fn, which writes its own")],
)
def test_gradients_are_those_of_a_network(config: Path, model: str, received: str) -> None:
    config.write_text(f"{CONFIG}model: {model}\ntraining: {{tensorboard: {{gradients: true}}}}\n")
    assert any(
        f"training.tensorboard.gradients: expected a network, received {received}" in line
        for line in list_errors(config)
    )


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ("kind: wide_deep, embedding: 16", "embedding_16", None),
        ("kind: wide_deep, embedding: 16", "wide", None),
        ("kind: wide_deep, embedding: 16", "embedding_32", "one of embedding_16, embedding_4, embedding_8, wide"),
        ("kind: mlp, embedding: 16", "wide", "one of embedding_16, embedding_4, embedding_8"),
        ("kind: dlrm, embedding: 16", "embedding", None),
        ("kind: linear", "embedding_8", "one of wide"),
        ("build: theirs.build", "wide", "a model with tables of ids"),
    ],
)
def test_partition_of_a_table_that_the_model_cannot_have_is_refused(
    config: Path, fields: str, name: str, expected: str | None
) -> None:
    strategy = f"{{kind: parameter_server, tables: {{{name}: {{partitioner: hash}}}}}}"
    config.write_text(f"{CONFIG}model: {{{fields}}}\ntraining: {{strategy: {strategy}}}\n")
    if expected is None:
        assert set(load(str(config)).config.training.strategy.tables) == {name}
        return
    [line] = [line for line in list_errors(config) if "strategy.tables" in line]
    assert f"training.strategy.tables.{name}: expected {expected}, received '{name}'" in line


def test_mesh_cannot_be_combined_with_a_run_fn(config: Path) -> None:
    config.write_text(f"{CONFIG}model: {{run_fn: theirs.run_fn}}\ntraining: {{strategy: {{kind: mesh}}}}\n")
    assert any("a run_fn chooses its devices itself; remove mesh" in line for line in list_errors(config))


def test_weight_must_be_a_numeric_column_that_is_not_in_the_label(config: Path) -> None:
    loaded = load(str(config), ["data.weight=trips"]).config
    columns = ["tips", "fare", "company", "miles"]
    (problem,) = check_columns(loaded, [*columns, "trip"])
    assert (problem.key, problem.message) == (
        ("data", "weight"),
        "the data has no column 'trips'; did you mean 'trip'?",
    )
    assert not check_columns(loaded, [*columns, "trips"])
    (problem,) = check_dtypes(loaded, {"trips": "bytes"})
    assert problem.message == "expected a column of numbers, and 'trips' holds text or bytes"
    assert not check_dtypes(loaded, {"trips": "int"})
    (line,) = list_errors(config, "data.weight=fare")
    assert "data.weight: expected a column that is not in the label, received 'fare'" in line


REGRESSION = ("data.label=tips", "data.task=regression", "evaluation.thresholds={mean_absolute_error: {max: 9}}")
QUANTILES = (*REGRESSION, "model.loss=quantile", "model.quantiles=[0.1, 0.9]")
POISSON = (*REGRESSION, "model.loss=poisson")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["model.loss=quantil"],
            "expected one of quantile, huber, poisson, tweedie, focal, listwise, received 'quantil'; did you",
        ),
        (
            ["model.loss=poisson"],
            "model.loss: expected focal, listwise or none, which fit a binary task, received poisson",
        ),
        (
            [*REGRESSION, "model.loss=focal"],
            "expected quantile, huber, poisson, tweedie or none, which fit a regression",
        ),
        (
            [
                *("data.label=company", "data.task=multiclass", "features.columns.company=hash"),
                *("evaluation.thresholds={accuracy: {min: 0}}", "features.columns={fare: z_score}"),
                *("model.loss=focal", "model.kind=gbt"),
            ],
            "model.loss: trees are trained with the focal loss of two classes, received a multiclass task",
        ),
        ([*POISSON, "evaluation.metrics=[quantile_loss]"], "requires model.loss: quantile, received loss: poisson"),
        (
            [*QUANTILES, "model.quantiles=[0.9]", "evaluation.metrics=[interval_width]"],
            "interval_width requires model.loss: quantile of two quantiles or more, received quantiles: [0.9]",
        ),
        (
            [*QUANTILES, "evaluation.metrics=[quantile_loss_at_0.8]"],
            "expected one of model.quantiles, 0.1, 0.9, received 0.8",
        ),
        (
            [*QUANTILES, "evaluation.slice_thresholds={company: {interval_coverage: {worse_by: 0.1}}}"],
            "evaluation.slice_thresholds: neither a higher nor a lower value is better",
        ),
        ([*QUANTILES, "tune={kind: {choice: [mlp, gbt]}}"], "trees are trained with in gbt, received quantile"),
    ],
)
def test_loss_that_is_incompatible_with_the_task_or_metrics_is_reported(
    config: Path, assignments: list[str], message: str
) -> None:
    assert message in " | ".join(list_errors(config, *assignments))


@pytest.mark.parametrize(
    "assignments",
    [
        ["model.loss=focal"],
        [*POISSON, "evaluation.metrics=[quantile_loss_at_0.8, tweedie_deviance_at_1.5]"],
        [*QUANTILES, "evaluation.metrics=[quantile_loss_at_0.9, interval_coverage]"],
    ],
)
def test_compatible_loss_is_accepted(config: Path, assignments: list[str]) -> None:
    assert load(str(config), assignments).config.model.loss


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "{labels: l.csv}",
            "expected a key with labels, received none; name a column of both the requests and the labels",
        ),
        ("{thresholds: {auc: {min: 0.5}}}", "expected labels with thresholds, received none; name their files"),
        ("{label_window: 7d}", "expected labels with label_window, received none"),
        (
            "{labels: l.csv, key: id, private: {id: drop}}",
            "private: expected hash for the key 'id', received drop; labels could not be joined: use hash",
        ),
        (
            "{labels: l.csv, key: id, private: {fare: hash}}",
            "expected drop for a column of the label or the weight, received hash for 'fare'; drop it",
        ),
        ("{private: {fare: encrypt}}", "expected one of hash, drop, received 'encrypt'"),
        (
            "{secret_env: 'a b'}",  # pragma: allowlist secret
            "expected a text that matches pattern '^[A-Za-z_][A-Za-z0-9_]*$', received 'a b'",
        ),
        (
            "{labels: l.csv, key: id, thresholds: {f1: {min: 0.5}}}",
            "expected a metric of the evaluation, received f1; add it to evaluation.metrics",
        ),
        ("{labels: l.csv, key: id, thresholds: {accuracy: {min: 0.5}}}", "accuracy does not fit a binary task"),
    ],
)
def test_monitoring_of_labels_requires_a_key_and_evaluated_metrics(config: Path, section: str, message: str) -> None:
    assert message in " | ".join(list_errors(config, f"monitor={section}"))
    accepted = "monitor={labels: l.csv, key: id, label_window: 7d, thresholds: {auc: {worse_by: 0.1}}}"
    assert load(str(config), [accepted]).config.monitor


def test_private_column_must_be_a_column_of_the_data_or_the_key(config: Path) -> None:
    section = "monitor={key: trip, private: {trip: hash, compny: hash, fare: drop}}"
    [problem] = check_columns(load(str(config), [section]).config, ["tips", "fare", "company", "miles"])
    assert problem.key == ("monitor", "private", "compny")
    assert problem.message == "the data has no column 'compny'; did you mean 'company'?"


def test_invalid_assignment_is_reported_as_typed(config: Path) -> None:
    assert list_errors(config, "training.steps=lots") == [
        "--set training.steps=lots: training.steps: expected a whole number, received 'lots'"
    ]
    assert "expected section.field=value" in list_errors(config, "training.steps")[0]


def test_missing_config_is_reported(tmp_path: Path) -> None:
    assert list_errors(tmp_path / "none.yaml") == ["no config at none.yaml"]


def test_preprocessing_fn_requires_a_run_fn(config: Path) -> None:
    start = CONFIG.index("  columns:")
    end = CONFIG.index("evaluation:")
    config.write_text(CONFIG[:start] + "  preprocessing_fn: my.module.preprocessing_fn\n" + CONFIG[end:])
    (line,) = list_errors(config)
    assert "give model.run_fn too" in line
    assert load(str(config), ["model.run_fn=my.module.run_fn"]).config.model.run_fn == "my.module.run_fn"
    assert "expected an import path" in list_errors(config, "model.run_fn=nodots")[0]


def test_shapes_cannot_be_inferred_for_a_curated_schema(config: Path) -> None:
    assert load(str(config), ["schema.infer_shapes=true"]).config.schema_.infer_shapes
    (line,) = list_errors(config, "schema.path=trips.pbtxt", "schema.infer_shapes=true")
    assert "schema.infer_shapes: a curated schema has its own shapes, and schema.path is trips.pbtxt" in line


def test_shipped_configs_are_valid_and_can_be_saved(tmp_path: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "configs/*.yaml"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert tracked == [str(path.relative_to(ROOT)) for path in CONFIGS]
    for path in CONFIGS:
        config = load(str(path)).config
        assert config.pipeline.name == path.stem
        copy = tmp_path / "copy.yaml"
        copy.write_text(yaml.safe_dump(config.model_dump(mode="json", by_alias=True, exclude_unset=True)))
        assert load(str(copy)).config == config


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ("training.steps=true", "training.steps: expected a number, received true"),
        ("model.hidden=[8, false]", "model.hidden: expected a number, received false"),
        ("evaluation.thresholds.auc.min=yes", "evaluation.thresholds.auc.min: expected a number, received true"),
        ("training.learning_rate=.inf", "training.learning_rate: expected a finite number, received inf"),
        ("training.learning_rate='nan'", "training.learning_rate: expected a finite number, received 'nan'"),
        (
            "features.columns.company.vocab.size=true",
            "features.columns.company.vocab.size: expected a number, received true",
        ),
    ],
)
def test_number_must_be_finite_and_not_a_boolean(config: Path, assignment: str, problem: str) -> None:
    assert list_errors(config, assignment) == [f"--set {assignment}: {problem}"]


def test_boolean_is_parsed_as_a_boolean(config: Path) -> None:
    assert load(str(config), ["runtime.cache=false"]).config.runtime.cache is False


def test_assignment_with_invalid_yaml_is_reported(config: Path) -> None:
    assert list_errors(config, "training.steps=[") == [
        "--set training.steps=[: the value is not valid YAML: did not find expected node content"
    ]


def test_config_that_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert list_errors(tmp_path / "pipe.yaml") == ["pipe.yaml: expected a file, received a FIFO"]


def test_config_that_is_too_large_is_rejected(config: Path) -> None:
    config.write_text("# " + "x" * 1_000_000)
    assert list_errors(config) == ["trips.yaml: expected at most 1,000,000 bytes, received more"]


def test_ftrl_is_only_for_a_linear_model(config: Path) -> None:
    ftrl = "training.optimizer.kind=ftrl"
    [line] = list_errors(config, "model.kind=mlp", "model.hidden=[8]", ftrl)
    assert "ftrl forgets initial weights: expected model.kind linear, received mlp; choose adam" in line
    assert load(str(config), ["model={kind: linear}", ftrl]).config.training.optimizer.kind == "ftrl"
