"""Which versions are loaded follows from the folder and the model config, read as TensorFlow Serving reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from components.serving.server.errors import RequestError
from components.serving.server.model_manager import read_configs, version_folders


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Versions 2, 10 and 11, and what is none."""
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
def test_every_policy(base: Path, policy: str, versions: list[int]) -> None:
    assert versions_to_load(base, policy) == versions


def test_from_flags_the_greatest_version_is_wanted(base: Path) -> None:
    assert version_folders(ModelConfig(base_path=str(base))) == {11: base / "11"}


def test_missing_folder_has_no_versions(base: Path) -> None:
    assert version_folders(ModelConfig(base_path=str(base / "nowhere"))) == {}


def test_labels_and_several_models(base: Path) -> None:
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
def test_no_model_config(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "models.config").write_bytes(content.encode("latin-1"))
    with pytest.raises(RequestError, match=word):
        read_configs(tmp_path / "models.config")


def test_empty_file_wants_nothing(tmp_path: Path) -> None:
    (tmp_path / "models.config").touch()
    assert read_configs(tmp_path / "models.config") == {}


def test_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        read_configs(tmp_path / "models.config")
