"""Tests that the folder and the model config determine the loaded versions, as in TensorFlow Serving."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from components.serving.server.errors import RequestError
from components.serving.server.model_manager import read_configs, version_folders


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Create a folder with the versions 2, 10 and 11, and with entries that are not versions."""
    for name in ("2", "10", "11", "-1", ".12", "12.partial", "v13", "٣", "rollout"):
        (tmp_path / "m" / name).mkdir(parents=True)
        (tmp_path / "m" / name / "saved_model.pb").touch()
    (tmp_path / "m" / "14").mkdir()
    (tmp_path / "m" / "15").touch()
    return tmp_path / "m"


def versions_to_load(base: Path, policy: str) -> list[int]:
    file = base.parent / "models.config"
    file.write_text(f'model_config_list {{ config {{ name: "m" base_path: "{base}" {policy} }} }}')
    return list(version_folders(read_configs(file)["m"]))


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("", [11]),
        ("model_version_policy { }", [11]),
        ("model_version_policy { latest { } }", [11]),
        ("model_version_policy { latest { num_versions: 2 } }", [10, 11]),
        ("model_version_policy { latest { num_versions: 99 } }", [2, 10, 11]),
        ("model_version_policy { all { } }", [2, 10, 11]),
        ("model_version_policy { specific { versions: 10 versions: 2 versions: 99 } }", [2, 10]),
        ("model_version_policy { specific { versions: 99 } }", []),
    ],
)
def test_policy_determines_the_versions(base: Path, policy: str, versions: list[int]) -> None:
    assert versions_to_load(base, policy) == versions


def test_newest_version_is_loaded_without_a_policy(base: Path) -> None:
    assert version_folders(ModelConfig(base_path=str(base))) == {11: base / "11"}


def test_missing_folder_does_not_have_versions(base: Path) -> None:
    assert version_folders(ModelConfig(base_path=str(base / "nowhere"))) == {}


def test_several_models_and_labels_can_be_configured(base: Path) -> None:
    file = base.parent / "models.config"
    file.write_text(
        f"""model_config_list {{
          config {{ name: "m" base_path: "{base}" model_platform: "tensorflow"
                   version_labels {{ key: "stable" value: 2 }} version_labels {{ key: "canary" value: 10 }} }}
          config {{ name: "n" base_path: "{base}" }}
        }}"""
    )
    configs = read_configs(file)
    assert {name: dict(config.version_labels) for name, config in configs.items()} == {
        "m": {"stable": 2, "canary": 10},
        "n": {},
    }


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("model_config_list {", "models.config: expected a ModelServerConfig"),
        ("models { }", "models.config: expected a ModelServerConfig"),
        ("\xff", "models.config: expected a ModelServerConfig"),
        ('model_config_list { config { name: "m" } }', "expected a unique name and a base_path, received 'm'"),
        ('model_config_list { config { base_path: "/b" } }', "expected a unique name and a base_path"),
        ('model_config_list { config { name: "m" base_path: "/b" } config { name: "m" base_path: "/c" } }', "'m'"),
        (
            'model_config_list { config { name: "m" base_path: "/b" model_version_policy { specific { } } } }',
            "expected the specific versions of 'm'",
        ),
    ],
)
def test_invalid_model_config_is_rejected(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "models.config").write_bytes(content.encode("latin-1"))
    with pytest.raises(RequestError, match=word):
        read_configs(tmp_path / "models.config")


def test_empty_file_configures_nothing(tmp_path: Path) -> None:
    (tmp_path / "models.config").touch()
    assert read_configs(tmp_path / "models.config") == {}


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        read_configs(tmp_path / "models.config")
