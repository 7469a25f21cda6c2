"""The faults of tools/mutations.yaml fit the code."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_line_of_every_fault_occurs_once() -> None:
    faults = yaml.safe_load((ROOT / "tools" / "mutations.yaml").read_text())["mutations"]
    counts = {fault["line"]: (ROOT / fault["file"]).read_text().count(fault["line"]) for fault in faults}
    assert {line: count for line, count in counts.items() if count != 1} == {}
    assert len(faults) > 30
