"""TensorBoard's pages of a real training in a real browser: the projector and the histograms."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.data import people
from tests.support.runs.command import command
from tests.support.servers.browser import keep, needs_browser, open_watched_tab, sync_api

pytestmark = [needs_browser, pytest.mark.extended]

_MILLISECONDS = 120_000
_WIDTH = 4
"""Width of the embedding."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Run TensorBoard, and yield its address."""
    arguments = ["tensorboard.main", "--logdir", str(folder), "--port", "0", "--load_fast=false"]
    with subprocess.Popen([sys.executable, "-m", *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield next(found[0] for line in process.stderr if (found := re.search(r"http://\S+/", line)))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training's curves."""
    folder = tmp_path_factory.mktemp("training")
    tensorboard = {"graph": True, "projector": True, "histograms": True, "gradients": True}
    config = people.write_config(
        folder / "people.yaml",
        people.write(folder / "people.csv", people.rows(400)),
        features={"columns": {"age": "z_score", "city": {"vocab": {"embedding": _WIDTH}}}},
        training={**people.CONFIG["training"], "tensorboard": tensorboard},
    )
    arguments = ("--local", "--config", str(config), "--output", str(folder / "out"), "--to", "Trainer", "--json")
    assert command(*arguments).result["state"] == "done"
    (run,) = folder.glob("out/**/Trainer/model_run/*")
    return run


def rank_by_cosine(folder: Path, label: str) -> dict[str, float]:
    """Return the cosine distances to the embedding of a label, nearest first, from the exported files."""
    (table,), (names,) = folder.glob("train/*.bytes"), folder.glob("train/*.tsv")
    labels = names.read_text(encoding="utf-8").splitlines()
    vectors = np.fromfile(table, np.float32).reshape(len(labels), _WIDTH)
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - directions @ directions[labels.index(label)]
    order = np.argsort(distances)
    return {labels[row]: float(distances[row]) for row in order if labels[row] != label}


def test_projector_shows_the_neighbours_of_a_value(browser: Any, training: Path) -> None:
    with serve(training) as address, browser.new_context() as context:
        tab = open_watched_tab(context)
        tab.goto(f"{address}#projector", timeout=_MILLISECONDS)
        # The page contains a frame for the plugin, and that contains another one.
        page = tab.frame_locator("iframe").frame_locator("iframe")
        sync_api.expect(page.get_by_text("Points: 5")).to_be_visible(timeout=_MILLISECONDS)
        sync_api.expect(page.get_by_text(f"Dimension: {_WIDTH}")).to_be_visible()
        page.locator("vz-projector-inspector-panel vz-projector-input input").fill("Paris")
        page.locator(".nn-list .neighbor").first.wait_for(timeout=_MILLISECONDS)
        shown = [entry.split("\n") for entry in page.locator(".nn-list .neighbor").all_inner_texts()]
        keep(tab, "projector")
    expected = rank_by_cosine(training, "Paris")
    assert [label for label, _ in shown] == list(expected)
    np.testing.assert_allclose([float(distance) for _, distance in shown], list(expected.values()), rtol=0, atol=1e-3)


def test_histograms_show_weights_and_gradients(browser: Any, training: Path) -> None:
    with serve(training) as address, browser.new_context() as context:
        tab = open_watched_tab(context)
        tab.goto(f"{address}#histograms", timeout=_MILLISECONDS)
        for tag in (f"embedding_{_WIDTH}/rows:0", "gradient/hidden_0/kernel:0"):
            sync_api.expect(tab.get_by_text(f"tag: {tag}").first).to_be_visible(timeout=_MILLISECONDS)
        sync_api.expect(tab.locator("vz-histogram-timeseries path").first).to_be_attached(timeout=_MILLISECONDS)
        keep(tab, "histograms")
