"""5,000 JPEGs of 224 by 224 in 20 classes train under three strategies; each exported model serves encoded files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from data import shapes
from tests.support.runs.command import Ended, command
from tests.support.servers.serving import Server, b64, predict, serving

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

STEPS = 2000
STRATEGIES = {
    "none": ("{kind: none}", 0.5),
    "multi_worker": ("{kind: multi_worker, workers: 2}", 0.4),
    "parameter_server": ("{kind: parameter_server, workers: 2, ps: 1}", 0.25),
}
"""Name → the strategy, and the least accuracy. Workers that do not wait for each other compute gradients by older
weights, so their loss decreases later."""
ASKED = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the images into a folder; runs in this folder share the nodes before the Trainer."""
    folder = tmp_path_factory.mktemp("shapes")
    shapes.write(folder / "images")
    return folder


def train(folder: Path, strategy: str, least: float) -> Ended:
    fields = (
        f"data.path={folder / 'images'}",
        f"training.strategy={strategy}",
        f"training.steps={STEPS}",
        f"evaluation.thresholds={{accuracy: {{min: {least}}}}}",
    )
    sets = [word for field in fields for word in ("--set", field)]
    return command("--local", "--json", "--config", "configs/shapes.yaml", *sets, "--output", str(folder / "out"))


def ask(server: Server, images: list[bytes]) -> tuple[list[list[float]], list[list[float]]]:
    """Request the probabilities of some images by REST and by gRPC."""
    status, answer = server.ask(
        "POST",
        "/v1/models/shapes:predict",
        {"signature_name": "raw", "instances": [{"image": b64(image)} for image in images]},
    )
    assert status == 200, answer
    with server.stubs() as (stub, _):
        response = stub.Predict(predict("shapes", "raw", image=tf.constant(images)))
    by_rest = [prediction["probabilities"] for prediction in answer["predictions"]]
    classes = answer["predictions"][0]["classes"]
    assert sorted(classes) == sorted(shapes.CLASSES)
    return by_rest, tf.make_ndarray(response.outputs["probabilities"]).tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_images_train_and_the_model_serves_encoded_files(folder: Path, tmp_path: Path, strategy: str) -> None:
    chosen, least = STRATEGIES[strategy]
    ended = train(folder, chosen, least)
    assert ended.exit_code == 0, ended.out or ended.err
    result = ended.result
    assert result["rows_read"] == shapes.COUNT
    assert result["verdict"] == "blessed"
    metrics = result["metrics"]
    assert least <= metrics["accuracy"] < metrics["accuracy_at_3"]
    assert {entry["slice"]["label"] for entry in result["slices"]} == set(shapes.CLASSES)

    [evaluation] = sorted((folder / "out/shapes/artifacts/Evaluator/evaluation").iterdir())[-1:]
    worst = json.loads((evaluation / "mistakes.json").read_text())
    assert len(worst) == 24
    assert [error["probability"] for error in worst] == sorted((error["probability"] for error in worst), reverse=True)
    for error in worst:
        assert error["name"].startswith(f"{error['label']}/")
        assert (folder / "images" / error["name"]).is_file()
        assert error["label"] != error["prediction"]
        assert error["thumbnail"]
    report = folder / "out/shapes/logs" / result["run"] / "report.html"
    assert report.read_text().count("data:image/jpeg;base64,") == 24

    paths = sorted((folder / "images").glob("*/*.jpg"), key=lambda path: path.stem)[:ASKED]
    images = [path.read_bytes() for path in paths]
    pushed = Path(result["pushed"])
    model = tf.saved_model.load(str(pushed))
    expected = model.signatures["raw"](image=tf.constant(images))
    with serving(tmp_path, "--model_name=shapes", f"--model_base_path={pushed.parent}") as server:
        server.wait("shapes", int(pushed.name))
        by_rest, by_rpc = ask(server, images)
    np.testing.assert_allclose(by_rest, expected["probabilities"], atol=1e-5)
    np.testing.assert_allclose(by_rpc, expected["probabilities"], atol=1e-5)
    classes = expected["classes"].numpy()[np.arange(ASKED), np.argmax(by_rpc, axis=1)]
    right = np.mean([name.decode() == path.parent.name for name, path in zip(classes, paths, strict=True)])
    # Four standard errors of a share of this number of images.
    assert right >= metrics["accuracy"] - 2 / ASKED**0.5, "most of these images were trained on"
