"""A config of one column, loaded, with a file of one row."""

from __future__ import annotations

from pathlib import Path

from pipeline.authoring.config import Loaded, load


def load_small(folder: Path, *lines: str) -> Loaded:
    """Write the config, with more lines of YAML, into a folder and load it; its output is `out` there."""
    (folder / "rows.csv").write_text("fare,tips\n1.5,0\n")
    config = folder / "small.yaml"
    config.write_text(
        f"data: {{path: {folder / 'rows.csv'}, label: tips}}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"runtime: {{output: {folder / 'out'}}}\n" + "".join(f"{line}\n" for line in lines)
    )
    return load(str(config))
