"""Side tables are checked before a run, and other rows are joined only if they are predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.preflight import check_data


def load_config(folder: Path, *assignments: str) -> Any:
    (folder / "trips.csv").write_text("tips,zone\n1,7\n0,8\n")
    (folder / "zones.csv").write_text("zone,size\n7,2\n")
    config = {
        "data": {"path": str(folder / "trips.csv"), "label": "tips", "join": [{"path": "PATH", "on": "zone"}]},
        "features": {"columns": {"size": "z_score"}},
        "evaluation": {"slices": ["size"], "thresholds": {"auc": {"min": 0.5}}},
    }
    path = folder / "trips.yaml"
    path.write_text(yaml.safe_dump(config).replace("PATH", str(folder / "zones.csv")))
    return load(str(path), assignments)


def test_rows_that_are_predicted_are_joined_and_labels_that_arrive_later_are_not(tmp_path: Path) -> None:
    loaded = load_config(tmp_path)
    check_data(loaded)
    config = loaded.config
    assert config.data_of(("other.csv",), is_predicted=True).join == config.data.join
    assert config.data_of(("other.csv",)).join == ()
    assert ("data.join[0].path", str(tmp_path / "zones.csv")) in config.data.places


def test_paths_of_the_plan_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may run in another folder."""
    monkeypatch.chdir(tmp_path)
    config = load_config(tmp_path, "data.join=[{path: zones.csv, on: zone}]").config
    assert config.data.ingest("csv").join[0].path == (str(tmp_path / "zones.csv"),)


LABEL = ["data.label=size", "features.columns={zone: vocab}", "evaluation.slices=[]"]


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["data.join=[{path: ZONES, on: zon}]"], "/zones.csv, received 'zon'; did you mean 'zone'?"),
        (LABEL, "data.label: expected a column of data.path, received 'size', which data.join adds"),
        (["data.where=sizes > 1"], "the data has no column 'sizes'"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path: Path, assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        check_data(load_config(tmp_path, *(text.replace("ZONES", str(tmp_path / "zones.csv")) for text in assignments)))
    assert message in str(raised.value)
