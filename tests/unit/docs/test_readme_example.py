"""The README's own-data example, run as it stands there: its config on a table, its program on the pushed model."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def write_customers(path: Path, rows: int) -> None:
    """Customers who mostly leave when their plan is basic, and a little more when they call little."""
    draw = random.Random(7)  # noqa: S311 - a simulation
    lines = ["age,plan,minutes,churned"]
    for _ in range(rows):
        age = "" if draw.random() < 0.03 else draw.randint(18, 80)
        plan, minutes = draw.choice(["basic", "family", "flat"]), round(draw.lognormvariate(4, 1), 1)
        leaves = draw.random() < 0.75 * (plan == "basic") + 0.2 * (minutes < 40)
        lines.append(f"{age},{plan},{minutes},{int(leaves)}")
    path.write_text("\n".join(lines) + "\n")


def from_readme(language: str, start: str) -> str:
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if text.startswith(start))


def python(folder: Path, *arguments: str) -> str:
    ended = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.e2e
def test_the_readmes_config_makes_a_model_that_its_program_can_use(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "configs").mkdir()
    write_customers(tmp_path / "data" / "customers.csv", rows=3000)
    (tmp_path / "configs" / "churn.yaml").write_text(from_readme("yaml", "# configs/churn.yaml"))
    runner = str(ROOT / "runner.py")
    python(tmp_path, runner, "validate", "--config", "configs/churn.yaml")
    assert "the model is blessed" in python(tmp_path, runner, "--local", "--config", "configs/churn.yaml")
    printed = python(tmp_path, "-c", from_readme("python", "from pathlib"))
    basic_and_silent, flat_and_talkative = map(float, re.findall(r"[\d.]+(?:e-\d+)?", printed))
    # The data's own probabilities are 0.95 and 0.
    assert basic_and_silent == pytest.approx(0.95, abs=0.1)
    assert flat_and_talkative == pytest.approx(0.0, abs=0.1)
