"""`tfx_pipeline` fits, loads, predicts, explains and compares, with the types of a DataFrame and from any folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import tfx_pipeline
from tests.support.data import doc_pages
from tfx_pipeline import CommandError, Run, command_line

pytestmark = pytest.mark.xdist_group("python_interface")
ROWS = 2_000
FAST = {"training.steps": 150}


def draw_people(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return a table with the types of pandas, missing values, and names with spaces."""
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 90, rows)
    income = draw.lognormal(10, 0.4, rows)
    plan = draw.choice(["basic", "flat", "família"], rows)
    logit = 0.08 * (age - 54) + 2 * (plan == "flat") - 1 + draw.normal(0, 0.5, rows)
    frame = pd.DataFrame(
        {
            "years of work": pd.array(age, dtype="Int64"),
            "income": income,
            "plan": pd.Categorical(plan),
            "is member": draw.random(rows) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 1000, rows), unit="D"),
            "churned": (logit > 0).astype(np.int8),
        },
        index=[f"customer {number}" for number in range(rows)],
    )
    frame.loc[draw.random(rows) < 0.1, "years of work"] = pd.NA
    frame.loc[draw.random(rows) < 0.1, "income"] = np.nan
    return frame


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("python") / "out"
    command_line.COMMAND_LINE.close()


@pytest.fixture(scope="module")
def run(output: Path) -> Run:
    """Run the example of the page, in another folder."""
    (example,) = doc_pages.blocks(doc_pages.ROOT / "docs" / "how-to" / "python.md", "python")
    variables: dict[str, Any] = {"customers": draw_people()}
    output.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(output.parent)
        exec(example, variables)  # noqa: S102 - the page is ours
    return variables["run"]


def test_model_is_as_good_as_an_independent_program_says(run: Run) -> None:
    assert (run.state, run.verdict) == ("done", "blessed"), run.description
    new = draw_people(1_000, seed=1)
    predictions = run.predict(new)
    assert list(predictions.index) == list(new.index)
    # The label follows from the columns but for noise; the best possible model has about 0.98.
    assert roc_auc_score(new["churned"], predictions["probability"]) > 0.93
    assert run.metrics["auc"] == pytest.approx(roc_auc_score(new["churned"], predictions["probability"]), abs=0.05)
    assert run.pushed is not None
    assert (run.pushed / "saved_model.pb").exists()
    assert run.config["data"]["label"] == "churned"
    assert {"metric", "kind"} <= {*run.checks.columns}


def test_predictions_do_not_depend_on_the_order_and_the_form_of_rows(run: Run) -> None:
    new = draw_people(50, seed=2)
    expected = run.predict(new)["probability"].to_numpy()
    np.testing.assert_allclose(run.predict(new.iloc[::-1])["probability"].to_numpy()[::-1], expected, atol=1e-6)
    changed = new[reversed(new.columns)].assign(unused="x").astype({"plan": object, "years of work": "float64"})
    np.testing.assert_allclose(run.predict(changed)["probability"], expected, atol=1e-6)
    table = pa.Table.from_pandas(new, preserve_index=False)
    np.testing.assert_allclose(run.predict(table)["probability"], expected, atol=1e-6)
    assert run.predict(new.drop(columns="churned"))["probability"].to_numpy() == pytest.approx(expected, abs=1e-6)


def test_contributions_add_up_to_the_difference_of_predictions(run: Run) -> None:
    rows = draw_people(4, seed=3)
    contributions = run.explain(rows)
    probabilities = run.predict(rows)["probability"]
    assert list(contributions.index) == list(rows.index)
    differences = probabilities.to_numpy() - contributions.sum(axis=1).to_numpy()
    # The mean prediction of the training rows is the same for all rows.
    np.testing.assert_allclose(differences, differences[0], atol=1e-5)


def test_importance_names_the_columns_that_determine_the_label(run: Run) -> None:
    assert {*run.importance.index[:2]} == {"years_of_work", "plan"}
    assert (run.importance["loss"].iloc[:2] > 0.01).all()


def test_report_is_shown_in_a_notebook(run: Run) -> None:
    report = run.report()
    assert report.path.exists()
    assert report._repr_html_().startswith("<iframe srcdoc=")


def test_rejected_model_is_a_run_and_not_an_error(run: Run, output: Path) -> None:
    settings: dict[str, Any] = {**FAST, "evaluation.thresholds": "{auc: {min: 0.9999}}"}
    rejected = tfx_pipeline.fit(config=output / "people.yaml", output=output, settings=settings, progress=False)
    assert (rejected.state, rejected.verdict, rejected.pushed) == ("rejected", "not blessed", None)
    assert rejected.predict(draw_people(3, seed=4))["probability"].between(0, 1).all()
    comparison = tfx_pipeline.compare(run, rejected)
    assert comparison["verdict"] == ["blessed", "not blessed"]
    loaded = tfx_pipeline.load(output)
    assert loaded.id == rejected.id
    assert tfx_pipeline.load(output, run.id).metrics == run.metrics


def test_interrupt_ends_the_run_and_the_next_call_works(run: Run, output: Path) -> None:
    def interrupt(text: str) -> None:
        if "ExampleGen: running" in text:
            raise KeyboardInterrupt

    words = ["run", "--config", str(output / "people.yaml"), "--output", str(output), "--no-cache"]
    with pytest.raises(KeyboardInterrupt):
        command_line.COMMAND_LINE.run(words, interrupt)
    assert tfx_pipeline.load(output).state == "interrupted"
    assert tfx_pipeline.load(output, run.id).state == "done"


def test_process_that_is_killed_is_replaced(run: Run, output: Path) -> None:
    def kill(text: str) -> None:
        process = command_line.COMMAND_LINE._process
        assert process is not None
        process.kill()

    with pytest.raises(CommandError, match=r"ended before its work was done"):
        # The first text that `run` prints is long before its end.
        command_line.COMMAND_LINE.run(["run", "--config", str(output / "people.yaml"), "--output", str(output)], kill)
    assert tfx_pipeline.load(output, run.id).id == run.id


def test_fault_of_this_project_is_reported_with_its_place() -> None:
    unexpected: Any = [5]
    with pytest.raises(CommandError, match=r"(?s)Traceback.*AttributeError"):
        command_line.COMMAND_LINE.run(unexpected)


def test_missing_column_is_named(run: Run) -> None:
    with pytest.raises(CommandError, match="plan"):
        run.predict(draw_people(3).drop(columns="plan"))


def test_column_with_several_types_is_named(output: Path) -> None:
    frame = pd.DataFrame({"a": [1, "b", 2.5], "y": [0, 1, 0]})
    with pytest.raises(CommandError, match=r"(?s)column.* a .*remedy"):
        tfx_pipeline.fit(frame, "y", output=output, progress=False)


def test_unknown_label_is_an_error_with_a_suggestion(output: Path) -> None:
    with pytest.raises(CommandError, match=r"(?s)churned.*remedy"):
        tfx_pipeline.fit(draw_people(50), "churnd", name="other", output=output, budget=0, progress=False)


def test_other_modules_of_the_same_names_do_not_disturb(run: Run, output: Path, tmp_path: Path) -> None:
    for name in ("pipeline", "components", "data", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the user\\'s own module')\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, tfx_pipeline\n"
        f"print(tfx_pipeline.load({str(output)!r}, {run.id!r}).verdict)\n"
        "assert not {'tensorflow', 'pipeline', 'components'} & sys.modules.keys()\n"
    )
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert (result.returncode, result.stdout) == (0, "blessed\n"), result.stderr
