"""Requests drawn from the server's own OpenAPI document by schemathesis, to a real server; see fuzz.py for parsers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from command import call
from old_models import classifier
from serving import Server, add_manifest, serving

pytestmark = pytest.mark.slow

_EXAMPLES = 50
"""Requests of each kind to each operation."""
_CONFIG = """
[parameters]
"path.model" = "{model}"
"path.version" = "1"
"path.label" = "stable"
"""


class _Double(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"doubled": 2 * x}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rest")
    model = _Double()
    tf.saved_model.save(model, str(folder / "double" / "1"), signatures={"serving_default": model.__call__})
    classifier(folder / "old", 1)
    add_manifest(folder / "double" / "1", "double")
    add_manifest(folder / "old" / "1", "old")
    models = "".join(
        f'config {{ name: "{name}" base_path: "{folder / name}" version_labels {{ key: "stable" value: 1 }} }}'
        for name in ("double", "old")
    )
    (folder / "models.config").write_text(f"model_config_list {{ {models} }}")
    with serving(folder, f"--model_config_file={folder / 'models.config'}", "--enable_batching") as server:
        for name in ("double", "old"):
            server.wait(name, 1)
        yield server
        assert server.stop() == 0


@pytest.mark.parametrize("model", ["double", "old", None])
def test_answers_are_as_documented(server: Server, model: str | None, tmp_path: Path) -> None:
    """No status 500 and none that is not documented; each answer has its schema, and what breaks it is rejected.

    With the path of a model that is loaded, and with any path.
    """
    config = tmp_path / "schemathesis.toml"
    config.write_text(_CONFIG.format(model=model) if model else "")
    command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={config}", "run"]
    # A body may fit the schema, but not the signature of the model.
    command += ["--exclude-checks=positive_data_acceptance", f"--max-examples={_EXAMPLES}", "--seed=1"]
    ended = call([*command, f"http://127.0.0.1:{server.rest}/openapi.json"], {"NO_COLOR": "1"})
    assert ended.exit_code == 0, ended.out[-5000:]
    assert re.search(r"[1-9]\d* generated, [1-9]\d* passed", ended.out), ended.out[-2000:]
