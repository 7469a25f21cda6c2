"""An unchanged config as Kubeflow would run it: all container commands run, with metadata on a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.core.metadata.store import Store
from tests.support.runs.command import Runs, command
from tests.support.runs.lineage_edges import edges
from tests.support.servers import kubeflow_pipelines
from tests.support.servers.databases import PASSWORD, SERVERS

pytestmark = [pytest.mark.e2e, pytest.mark.orchestrator, pytest.mark.slow, kubeflow_pipelines.needs_kfp]


def test_same_config_gives_the_same_model_and_lineage(
    example: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, volume = tmp_path / "pipeline.yaml", tmp_path / "volume"
    with SERVERS["postgresql"]() as server:
        store = server.location
        sets = [f"metadata.backend={store.backend}", f"metadata.host={store.host}", f"metadata.port={store.port}"]
        sets += [f"metadata.database={store.name}", f"metadata.user={store.user}"]
        section = ["kubeflow.image=example.com/pipeline:1", "kubeflow.claim=pipeline", f"kubeflow.mount={volume}"]
        secret = ["METADATA_PASSWORD.secret=metadata", "METADATA_PASSWORD.key=password"]
        section += [f"kubeflow.secrets.{setting}" for setting in secret]
        shared = [*example.config, *(word for setting in sets for word in ("--set", setting))]
        added = [word for setting in section for word in ("--set", setting)]
        written = command("--kubeflow", *shared, *added, "--output", str(file))
        assert (written.exit_code, written.err) == (0, "")

        pipeline = kubeflow_pipelines.read(file)
        cluster = kubeflow_pipelines.Cluster(tmp_path / "cluster", {("metadata", "password"): PASSWORD})
        run = cluster.run(pipeline)
        shown = cluster.artifacts["evaluator"]
        assert shown["metrics"]["metadata"] == pytest.approx(example.first.result["metrics"], abs=0.01)
        assert shown["classification"]["metadata"]["confidenceMetrics"]
        assert cluster.artifacts["pusher"]["pushed_model"]["type"] == "Model"
        assert "Evaluator" in (tmp_path / "cluster" / run / "evaluator" / "report").read_text()
        assert sorted(cluster.ran) == sorted(pipeline.spec["root"]["dag"]["tasks"])

        monkeypatch.setenv("METADATA_PASSWORD", PASSWORD)
        folder = volume / "out" / example.pipeline
        looked = (*shared, "--output", str(volume / "out"))
        [row] = [json.loads(line) for line in command("runs", *looked, "--json").out.splitlines()]
        assert (row["run"], row["state"], row["verdict"]) == (run, "done", "blessed")
        local = example.first.result
        assert row["metrics"] == pytest.approx(local["metrics"], abs=0.01)
        assert edges(Store(store), run) == edges(Store(example.output / "metadata.db"), local["run"])
        assert run in command("store", "lineage", row["version"], *looked).out
    assert "LatestBlessedModel" in (folder / "logs" / run / "report.html").read_text()
    assert (folder / "pushed" / row["version"] / "saved_model.pb").is_file()
