"""Tests for the checks before a run, which report errors that would otherwise occur later in the run."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from components.base import limits
from components.base.errors import InputError
from pipeline.authoring import preflight
from pipeline.authoring.config import Config, Loaded
from tests.support.data.small_config import load_small


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load_small(
        tmp_path, f"push: {{directory: {tmp_path / 'pushed'}, model_signing: {{private_key_env: MY_KEY}}}}"
    )


def test_preflight_passes_on_a_valid_config(loaded: Loaded) -> None:
    preflight.check(loaded)


def test_damaged_state_of_the_push_folder_is_reported(loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "registry.json").write_text('{"stable": 1')
    with pytest.raises(InputError, match=r"registry\.json is damaged"):
        preflight.check(loaded)


def test_empty_variable_for_the_private_key_is_reported(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "")
    with pytest.raises(InputError, match="MY_KEY: expected the PEM file of a key, received ''"):
        preflight.check(loaded)


@pytest.mark.parametrize(
    ("field", "url", "package", "extra"),
    [
        ("data.path", "s3://rides/rows.csv", "s3fs", "s3"),
        ("data.path", "az://rides/rows.csv", "adlfs", "azure"),
        ("push.directory", "s3://rides/models", "s3fs", "s3"),
        ("runtime.artifacts", "az://rides/out", "adlfs", "azure"),
    ],
)
def test_missing_package_for_an_object_store_is_reported(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, field: str, url: str, package: str, extra: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    values = loaded.config.model_dump(by_alias=True)
    section, _, name = field.partition(".")
    values[section][name] = (url,) if field == "data.path" else url
    config = Config.model_validate(values)
    with pytest.raises(InputError, match=f"{field}: expected the package {package} to open {url}") as raised:
        preflight.check(dataclasses.replace(loaded, config=config))
    assert f"requirements-{extra}.txt" in raised.value.remedy


def load_hashed(loaded: Loaded, kind: str = "mlp", where: dict[str, str] | None = None, **options: int) -> Config:
    """Return a config with a hash feature of 100 million buckets.

    Args:
      loaded: The config to change.
      kind: Kind of the model.
      where: Section `training.where`.
      options: Further options of the operation `hash`.
    """
    values = loaded.config.model_dump(by_alias=True)
    values["features"]["columns"]["fare"] = [{"op": "hash", "buckets": 100_000_000, **options}]
    values["model"]["kind"], values["training"]["where"] = kind, where
    return Config.model_validate(values)


@pytest.mark.parametrize(
    ("kind", "options", "numbers"),
    [("mlp", {}, 16), ("mlp", {"embedding": 3}, 3), ("wide_deep", {"embedding": 3}, 4), ("dlrm", {}, 17)],
)
def test_embedding_table_that_exceeds_the_memory_is_rejected(
    loaded: Loaded, kind: str, options: dict[str, int], numbers: int
) -> None:
    config = load_hashed(loaded, kind, **options)
    needed = (100_000_000 + 1) * numbers * 3 * 4
    assert preflight._check_table_memory(config, needed) == []
    (problem,) = preflight._check_table_memory(config, needed - 1)
    assert problem.key == ("features", "columns", "fare", 0, "hash")
    size = f"{needed / 2**30:.1f}"
    assert f"fit the {size} GiB of memory of this machine, received {size} GiB in training" in problem.message
    assert "that of 'fare_hash' has 100,000,001 rows" in problem.message


def test_embedding_table_is_not_checked_if_training_runs_elsewhere(loaded: Loaded) -> None:
    assert preflight._check_table_memory(load_hashed(loaded, where={"kind": "jobset", "image": "i"}), 1) == []


def test_preflight_rejects_a_config_that_exceeds_memory(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "memory", lambda: (2**30, 2**29))
    with pytest.raises(
        InputError, match=r"small.yaml:2: features.columns.fare.*1.0 GiB of memory of this machine.*: lower"
    ):
        preflight.check(Loaded(load_hashed(loaded), loaded.document))


def test_missing_data_is_reported_with_the_remedy_of_the_config(loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").unlink()
    values = loaded.config.model_dump(by_alias=True)
    values["data"] |= {"remedy": "make it with `make data`"}
    with pytest.raises(InputError, match="expected a file or folder at ") as raised:
        preflight.check(Loaded(Config.model_validate(values), loaded.document))
    assert raised.value.remedy == "make it with `make data`"
    # If the path is a pattern, the error says that it does not match any file yet.
    values["data"]["path"] = [str(tmp_path / "{SPAN}/*.csv")]
    with pytest.raises(InputError, match="there is none yet"):
        preflight.check(Loaded(Config.model_validate(values), loaded.document))
    (tmp_path / "7").mkdir()
    (tmp_path / "7/rows.csv").write_text("fare,tips\n1.5,0\n")
    preflight.check(Loaded(Config.model_validate(values), loaded.document))


JOBSET = "{kind: jobset, image: registry.example/taxi:1, volumes: VOLUMES}"
VERTEX = "{kind: vertex, image: registry.example/taxi:1, project: mine, region: europe-west4}"


def load_where(folder: Path, where: str, path: str = "/mnt/other") -> Loaded:
    volumes = f"{{{path}: {{persistentVolumeClaim: {{claimName: train}}}}}}"
    return load_small(folder, f"training: {{where: {where.replace('VOLUMES', volumes)}}}")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (JOBSET, r"expected a mount path that .*/out/small/artifacts is below, received /mnt/other"),
        (VERTEX, r"expected artifacts in a bucket, .* received .*/out/small/artifacts"),
    ],
)
def test_training_tasks_on_other_machines_must_reach_the_artifacts(tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        preflight.check(load_where(tmp_path, where))


def test_artifacts_on_a_volume_of_the_tasks_are_accepted(tmp_path: Path) -> None:
    preflight.check(load_where(tmp_path, JOBSET, str(tmp_path)))


def test_rows_to_predict_must_have_the_columns_of_the_model(loaded: Loaded, tmp_path: Path) -> None:
    rows = tmp_path / "new.csv"
    section = f"predict: {{path: {rows}, columns: [idd]}}"
    rows.write_text("id,distance\n1,2\n")
    with pytest.raises(InputError) as refused:
        preflight.check_data(load_small(tmp_path, section))
    assert "a feature is made of 'fare', and the rows have no such column" in str(refused.value)
    assert "expected a column of the rows, received 'idd'; did you mean 'id'" in str(refused.value)
    rows.write_text("idd,fare\n1,2\n")
    preflight.check_data(load_small(tmp_path, section))
    rows.unlink()
    with pytest.raises(InputError, match=r"predict\.path: .*new\.csv does not exist") as missing:
        preflight.check_data(load_small(tmp_path, section))
    assert "set predict.path to a file" in missing.value.remedy


def load_wide(loaded: Loaded, tmp_path: Path, columns: int, features: int) -> Loaded:
    """Write a wide table, and return a config that reads it.

    Args:
      loaded: The config to change.
      tmp_path: Folder of the table.
      columns: Number of columns, including the label.
      features: Number of columns with a feature.
    """
    names = [f"x{number}" for number in range(columns - 1)]
    (tmp_path / "rows.csv").write_text(f"{','.join([*names, 'tips'])}\n{'1,' * (columns - 1)}0\n")
    values = loaded.config.model_dump(by_alias=True)
    values["features"]["columns"] = {name: [{"op": "z_score"}] for name in names[:features]}
    return Loaded(Config.model_validate(values), loaded.document)


def test_maximum_numbers_of_columns_and_features_are_accepted(loaded: Loaded, tmp_path: Path) -> None:
    preflight.check_data(load_wide(loaded, tmp_path, limits.MOST_COLUMNS, limits.MOST_FEATURE_COLUMNS))


@pytest.mark.parametrize(
    ("more_columns", "more_features", "message"),
    [
        (1, 0, r"small.yaml:1: data.path: expected at most 10,000 columns, received 10,001; name those to read"),
        (0, 1, r"small.yaml:2: features.columns: expected features of at most 2,000 columns, received 2,001; remove"),
    ],
)
def test_wider_tables_are_rejected(
    loaded: Loaded, tmp_path: Path, more_columns: int, more_features: int, message: str
) -> None:
    table = load_wide(loaded, tmp_path, limits.MOST_COLUMNS + more_columns, limits.MOST_FEATURE_COLUMNS + more_features)
    with pytest.raises(InputError, match=message):
        preflight.check_data(table)


def test_columns_that_are_not_read_do_not_count(loaded: Loaded, tmp_path: Path) -> None:
    values = load_wide(loaded, tmp_path, limits.MOST_COLUMNS + 1, 1).config.model_dump(by_alias=True)
    values["data"]["columns"] = ["x0", "tips"]
    preflight.check_data(Loaded(Config.model_validate(values), loaded.document))


@pytest.mark.parametrize("is_shared", [False, True])
def test_number_of_classes_in_a_schema_is_limited(loaded: Loaded, tmp_path: Path, is_shared: bool) -> None:
    (tmp_path / "rows.csv").write_text("fare,tips\n1.5,v0\n")
    values = loaded.config.model_dump(by_alias=True)
    values["data"]["task"], values["schema"]["path"] = "multiclass", str(tmp_path / "schema.pbtxt")
    values["evaluation"]["thresholds"] = {"accuracy": {"min": 0.5}}
    multiclass = Loaded(Config.model_validate(values), loaded.document)

    def write(classes: int) -> None:
        texts = " ".join(f'value: "v{number}"' for number in range(classes))
        domain = 'domain: "all"' if is_shared else f"string_domain {{ {texts} }}"
        shared = f'string_domain {{ name: "all" {texts} }}' if is_shared else ""
        fare, label = 'feature { name: "fare" type: FLOAT }', f'feature {{ name: "tips" type: BYTES {domain} }}'
        (tmp_path / "schema.pbtxt").write_text(f"{shared} {fare} {label}")

    write(limits.MOST_CLASSES)
    preflight.check_data(multiclass)
    write(limits.MOST_CLASSES + 1)
    with pytest.raises(InputError, match=r"data.label: expected at most 10,000 classes, received 10,001 in the domain"):
        preflight.check_data(multiclass)


@pytest.mark.extended
def test_pattern_that_matches_no_layer_is_refused_with_the_names_of_the_layers(tmp_path: Path) -> None:
    lines = "model: {{kind: mlp, hidden: [4, 4]}}\ntraining: {{strategy: {{kind: mesh, place: {{{}: 1}}}}}}"
    preflight.check_place(load_small(tmp_path, lines.format("hidden_1")))
    with pytest.raises(InputError, match="'decoder_\\*', which matches none") as raised:
        preflight.check_place(load_small(tmp_path, lines.format('"decoder_*"')))
    assert "small.yaml:6: training.strategy.place: expected patterns" in raised.value.headline
    assert "choose from the layers numbers, hidden_0, hidden_1, logits" in raised.value.headline
