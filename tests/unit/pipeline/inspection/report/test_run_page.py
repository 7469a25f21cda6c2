"""Tests for the report of a run: its content, its notes on missing data, and the escaping of names."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from components.base.config_section import Task
from components.evaluator.dependence import Dependence
from components.evaluator.importance import Importance
from components.evaluator.verdict import ConstantMetric
from components.monitor.report_section import make_section
from components.monitor.result import Monitoring
from components.results import version_manifest
from components.results.decision import Decision
from pipeline.inspection.report import model_card
from pipeline.inspection.report.run_page import environment, render, render_section
from tests.support.runs.pushed import PROVENANCE
from tests.support.runs.report_runs import HARM, content_of, dependence, monitoring, write_run
from tests.support.runs.store_writer import Writer

_VOID = {"meta", "br", "img", "rect", "circle", "path", "polyline"}


class Parsed(HTMLParser):
    """The elements, attributes and texts of a page. It raises an AssertionError if elements are not nested correctly.

    Args:
      page: The page as HTML.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def render_page(folder: Path, run: str = "r1") -> str:
    return render(content_of(folder, run), folder / "logs" / run)


def test_page_shows_everything_that_the_run_recorded(tmp_path: Path):
    write_run(tmp_path)
    page_text = Parsed(render_page(tmp_path)).text
    for expected in (
        "rows train 8",
        "Out-of-range values",
        "warning : eval, image: 3 of 4 images (75.0 %)",
        "eval train similarity new.jpg old.jpg 0.9876",
        "2 more near duplicates are left out.",
        "test, image: not compared",
        "company_vocab 3",
        "label_counts (2)",
        "steps 30",
        "task variables peak memory sent received CPU-seconds ps-0 96.0 512 3.2 4.5 12.3",
        "train 0.1250",
        "the probability that tip is true.",
        "auc higher is better 0.7500 0.6250 to 0.8750 better than the best constant; 0.05 better than the previous "
        "model 0.5000 0.7000",
        "fail : auc where company = Blue: expected at least 0.6, received 0.5 (few rows)",
        "fare (100 %). Importance of all columns",
        "ROC: recall by false positive rate",
        "model: area 0.7500 baseline: area 0.7000 chance",
        "Calibration: label by probability",
        "Confusion matrix: model, as 1 from a probability of 0.5000 label as 0 as 1 recall "
        "0 387.5 137.5 73.8 % 1 112.5 362.5 76.3 % precision 77.5 % 72.5 %",
        "fail auc few rows company = Blue at least 0.6 0.5000 2",
        "company = Blue 2 0.5000 0.5500 (\N{MINUS SIGN}0.05)",
        "Blue 70.0 % 70.0 %",
        "missing 10.0 % / 10.0 %",
        "kind: wide_deep",
        "no earlier run of the pipeline has trained another model",
        "warning : leakage of refund: expected below 0.998, received 1",
        "best constant 0.5000",
        "nothing was pushed",
        "1 completed, 2 stopped, 1 failed. The loss is measured on the validation part. Trials are compared with each "
        "other after 10, 30, 90 steps",
        "lowest at learning_rate 0.01: 0.3750",
        "trial learning_rate kind steps loss seconds state 2 0.01 mlp 90 0.37500 4.0 completed 0 0.1 mlp 30 0.56250",
        "3 9 mlp 1.0 failed ?",
    ):
        assert expected in page_text, expected


def test_decision_is_shown_with_its_metrics(tmp_path: Path):
    write_run(tmp_path)
    content = content_of(tmp_path)
    metrics = {"precision": 0.5, "recall": 0.75, "f1": 0.6, "cost": 0.125}
    decision = Decision(0.25, "lowest mean cost with fp 1 and fn 5", None, None, metrics, 1200, 90)
    measured = {"precision": 0.625, "cost": 0.1875}
    content.summary = replace(
        content.summary,
        decisions={"": decision},
        metrics={**content.summary.metrics, **measured},
        constant={"cost": ConstantMetric(0.375)},
        baseline={"cost": 0.25},
    )
    page_text = Parsed(render(content, tmp_path)).text
    sentence = (
        "the class is 1 from a probability of 0.25: lowest mean cost with fp 1 and fn 5; on 1,200 validation rows"
    )
    assert f"Decision {sentence}, 90 with label 1." in page_text
    assert "metric validation rows eval split best constant baseline precision 0.5000 0.6250 recall 0.7500" in page_text
    assert "cost 0.1250 0.1875 0.3750 0.2500" in page_text
    text = model_card.to_markdown(content)
    assert f"### Decision\n\n{sentence}, 90 with label 1.\n" in text
    assert "| cost | 0.1250 | 0.1875 | 0.3750 | 0.2500 |" in text


def test_classes_are_named_and_rare_classes_are_combined(tmp_path: Path):
    write_run(tmp_path, task="multiclass", classes=3)
    page_text = Parsed(render_page(tmp_path)).text
    assert "label as class 0 as class 1 as class 2 as 1,000 others recall" in page_text
    assert "Confusion matrix: baseline" in page_text
    assert "class 1 1 20 1 1 87.0 %" in page_text
    assert "ROC" not in page_text


def test_class_names_end_only_at_newlines(tmp_path: Path):
    write_run(tmp_path, task="multiclass", classes=2)
    file = tmp_path / "r1" / "graph" / "transform_fn" / "assets" / "vocabulary_label_classes"
    file.write_bytes("a\u2028b\rc\nd\n".encode())
    page_text = Parsed(render_page(tmp_path)).text
    assert "label as a\\u2028b\\rc as d as 1,000 others recall" in page_text


def test_residuals_of_a_regression_are_shown(tmp_path: Path):
    write_run(tmp_path, task="regression")
    page_text = Parsed(render_page(tmp_path)).text
    assert "Label by prediction" in page_text
    assert "5 % below -0.4500 half below 0 95 % below 0.4500" in page_text
    assert not any(word in page_text for word in ("ROC", "onfusion"))


def test_importance_of_columns_is_shown_by_slice(tmp_path: Path):
    write_run(tmp_path)
    page = render_page(tmp_path)
    page_text = Parsed(page).text
    assert "Increase of the mean binary_crossentropy of 4 rows if the values of a column are shuffled" in page_text
    assert (
        "Share of all increases, decrease of AUC, and increase of binary_crossentropy overall and by slice" in page_text
    )
    assert "column share decrease of AUC overall company = Blue" in page_text
    assert "fare 1 0.5000 to 1 0.06250 0.2500 0.1250 to 0.3750 0.5000" in page_text
    assert "<desc>fare: 0.2500; company: -0.1250</desc>" in page
    (tmp_path / "r1" / "evaluation" / "importance.json").write_text(Importance(unknown="1 rows of 2").to_json())
    assert "Left out: 1 rows of 2." in Parsed(render_page(tmp_path)).text
    (tmp_path / "r1" / "evaluation" / "importance.json").unlink()
    assert "Left out: it was not recorded." in Parsed(render_page(tmp_path)).text


def test_columns_that_could_be_dropped_are_shown(tmp_path: Path):
    write_run(tmp_path)
    page_text = Parsed(render_page(tmp_path)).text
    effect = "shuffled together, they increase binary_crossentropy by -0.125 (-0.5 to 0.25) of 0.25"
    assert f"1 of 2 columns could be dropped; {effect}; at most 0.5 counts as noise." in page_text
    assert "company drop -0.1250 -0.5000 to 0.2500 inside the noise day keep needed" in page_text


def test_partial_dependence_and_interactions_are_drawn(tmp_path: Path):
    write_run(tmp_path)
    page = render_page(tmp_path)
    page_text = Parsed(page).text
    for expected in (
        "Mean probability of 4 rows if all had the same value of the column (partial dependence).",
        "probability by fare",
        "(missing): 0.6250",
        "items is left out: rows have several values.",
        "only 4 rows were used.",
        "fare, company 0.7500 0.5000",
        "Mean probability by fare (rows) and company (columns) Blue Red (other texts) 1 0 0.06250 0.1250 2 0.1250",
    ):
        assert expected in page_text
    assert "<desc>Blue: 0.2500; Red: 0.3750; (other texts): 0.5000</desc>" in page
    # The band's polygon goes forth along the upper and back along the lower ends of three numbers.
    [corners] = re.findall(r'<polygon class="band" points="([^"]*)"/>', page)
    assert len(corners.split()) == 6
    # The smallest mean of the heat map has the lightest shade, the largest the darkest.
    assert '<td class="n h1">0</td>' in page
    assert '<td class="n h5">0.5000</td>' in page
    (tmp_path / "r1" / "evaluation" / "dependence.json").write_text(dependence(classes=(1, 0)).to_json())
    page_text = Parsed(render_page(tmp_path)).text
    assert "probability by fare" in page_text
    assert "probability of 1 probability of 0 (missing): 0.6250, 0.6250" in page_text
    assert "probability of 1 by company" in page_text
    (tmp_path / "r1" / "evaluation" / "dependence.json").write_text(Dependence(unknown="too slow").to_json())
    assert "Left out: too slow." in Parsed(render_page(tmp_path)).text


def test_served_requests_are_compared_side_by_side(tmp_path: Path):
    write_run(tmp_path)
    page = render_page(tmp_path)
    page_text = Parsed(page).text
    for expected in (
        "warning : version 17 against training: company: distance 0.500, bound 0.1",
        "warning : version 17: auc: expected at most 0.1 below the baseline, received 0.625",
        "1,000 rows in the window, of which 900 are compared with 8.",
        "10 are compared with 8; too few to judge.",
        "company in served most in others: 75.0 %",
        "most different training served Blue 75.0 % 25.0 % others 25.0 % 75.0 %",
        "distance 0.5000 PSI 1.2500 p-value 0.0000 new values 0.6250 missing 10.0 % / 20.0 %",
        "800 of 900 rows have a label; 850 have a key.",
        "auc at most 0.1 below the baseline 0.6250 0.7500 fail difference -0.125",
        "overall 800 0.6250 0.5000 to 0.7000 0.7500 (0.6250 to 0.8750)",
        "company = Blue 20 0.6000",
        "Version 18 minus version 17 70 keys with a label",
        "auc -0.2500 -0.5000 to 0.1250 mean label 0.1000",
    ):
        assert expected in page_text, expected
    # Both charts have the same scale.
    assert '<path d="M0 40v-38.0h4v38.0zM5 40v-12.7h4v12.7z"/>' in page
    assert '<path d="M0 40v-12.7h4v12.7zM5 40v-38.0h4v38.0z"/>' in page
    monitoring_text = Parsed(render_section(make_section(monitoring()), "taxi")).text
    assert "taxi: served requests" in monitoring_text
    assert "auc -0.2500 -0.5000 to 0.1250" in monitoring_text
    (tmp_path / "r1" / "monitoring").write_text(json.dumps(Monitoring().to_dict()))
    assert "No version of the push folder has answered a request" in Parsed(render_page(tmp_path)).text
    (tmp_path / "r1" / "monitoring").unlink()
    assert "Served requests" not in Parsed(render_page(tmp_path)).text


def test_missing_plots_and_intervals_are_reported(tmp_path: Path):
    write_run(tmp_path)
    (tmp_path / "r1" / "monitoring").unlink()
    folder = tmp_path / "r1" / "evaluation"
    (folder / "plots.json").unlink()
    verdict = json.loads((folder / "verdict.json").read_text())
    for slice_record in verdict["slices"]:
        slice_record["intervals"] = {}
    (folder / "verdict.json").write_text(json.dumps(verdict))
    page_text = Parsed(render_page(tmp_path)).text
    assert "Left out: the data of the charts was not recorded." in page_text
    assert "overall 4 0.7500 0.7000 (+0.05)" in page_text
    assert not any(word in page_text for word in ("confidence", "ROC", "onfusion"))


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_hostile_names_are_escaped(tmp_path: Path, task: Task):
    write_run(tmp_path, harm=HARM, task=task)
    page = render_page(tmp_path)
    harmless = Parsed(render_harmless_page(tmp_path, task))
    parsed = Parsed(page)
    assert parsed.tags == harmless.tags
    assert {name for name, _ in parsed.attributes} == {name for name, _ in harmless.attributes}
    assert not {"script", "link", "iframe"} & parsed.tags
    assert_images_are_thumbnails(parsed)
    assert "<script>alert(1)</script>" in parsed.text, "shown, but as text"
    assert "\x1b" not in page
    assert "\u202e" not in html.unescape(page)
    assert "{{ 7 * 7 }}" in parsed.text, "a name is not a template"


def render_harmless_page(folder: Path, task: Task) -> str:
    write_run(folder / "plain", task=task)
    return render_page(folder / "plain")


def test_page_does_not_load_other_files(tmp_path: Path):
    write_run(tmp_path, harm=HARM)
    parsed = Parsed(render_page(tmp_path))
    links = [value or "" for name, value in parsed.attributes if name == "href"]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert_images_are_thumbnails(parsed)
    [policy] = [value for name, value in parsed.attributes if value and value.startswith("default-src")]
    assert "default-src 'none'" in policy


def assert_images_are_thumbnails(parsed: Parsed) -> None:
    """Check that the page has a single image, which is encoded in base64."""
    [source] = [value or "" for name, value in parsed.attributes if name == "src"]
    assert re.fullmatch(r"data:image/jpeg;base64,[A-Za-z0-9+/]+=*", source)


def test_worst_mistakes_are_shown_with_their_classes(tmp_path: Path):
    write_run(tmp_path)
    parsed = Parsed(render_page(tmp_path))
    assert "Worst mistakes" in parsed.text
    assert "cat as dog, 98.4 % cats/1.jpg No thumbnail. dog as cat, 75.0 %" in parsed.text
    assert ("alt", "cat, predicted as dog") in parsed.attributes
    evaluation = tmp_path / "r1" / "evaluation"
    (evaluation / "mistakes.json").write_text("[]")
    assert "The model classifies all images correctly." in Parsed(render_page(tmp_path)).text
    (evaluation / "mistakes.json").unlink()
    assert "Worst mistakes" not in Parsed(render_page(tmp_path)).text


def test_links_of_the_page_lead_to_its_sections(tmp_path: Path):
    write_run(tmp_path)
    attributes = Parsed(render_page(tmp_path)).attributes
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {(value or "")[1:] for name, value in attributes if name == "href"} <= set(ids)


def test_size_of_a_page_is_limited(tmp_path: Path):
    write_run(tmp_path, columns=2000, slices=10_000, task="multiclass", classes=20)
    page = render_page(tmp_path)
    page_text = Parsed(page).text
    assert "9,901 more slices, with fewer rows, are left out." in page_text
    assert "1,902 more columns are left out." in page_text
    assert "company = 9999" in page_text, "the largest slice stays"
    assert "company = 17 " not in page_text
    assert len(page) < 1_000_000


def test_data_is_compared_with_the_previous_run(tmp_path: Path):
    writer = write_run(tmp_path)
    write_run(tmp_path, "r2", writer, fares=3.0)
    assert "Split train, compared with run r1" in Parsed(render_page(tmp_path, "r2")).text
    write_run(tmp_path, "r3", writer, fares=3.0)
    assert "No column of train has a distance of 0.01 or more from run r2" in Parsed(render_page(tmp_path, "r3")).text


def test_values_missing_from_a_stock_run_are_explained(tmp_path: Path):
    writer = Writer(tmp_path / "metadata.db")
    writer.execution("r1", "CsvExampleGen")
    parsed = Parsed(render_page(tmp_path))
    assert {"CsvExampleGen", "done"} <= {text.strip() for text in parsed.texts}
    for reason in (
        "the rows were not counted",
        "the run has no statistics",
        "the run has no anomalies",
        "the config of the run was not recorded",
        "the run has no transform graph",
        "the run has no curves",
        "the model was not evaluated",
        "nothing was pushed",
        "the run did not produce a model",
        "no library version was recorded",
    ):
        assert f"Left out: {reason}" in parsed.text


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("statistics/Split-train/FeatureStats.pb", "the statistics"),
        ("anomalies/Split-eval/SchemaDiff.pb", "cannot be read: DecodeError"),
        ("graph/transformed_metadata/asset_map", "cannot be read: UnicodeDecodeError"),
        ("evaluation/verdict.json", "cannot be read: UnicodeDecodeError"),
        ("evaluation/plots.json", "cannot be read: UnicodeDecodeError"),
        ("evaluation/importance.json", "cannot be read: UnicodeDecodeError"),
        ("evaluation/dependence.json", "cannot be read: UnicodeDecodeError"),
    ],
)
def test_damaged_file_affects_only_its_part_of_the_report(tmp_path: Path, file: str, reason: str):
    write_run(tmp_path)
    (tmp_path / "r1" / file).write_bytes(b"\xff\x07{")
    page_text = Parsed(render_page(tmp_path)).text
    assert f"Left out: {reason}" in page_text
    assert "kind: wide_deep" in page_text
    assert "train 0.1250" in page_text


@pytest.mark.parametrize(
    ("value", "baseline", "message"),
    [(0.75, 0.5, "+0.25"), (0.5, 0.75, "\N{MINUS SIGN}0.25"), (1.0, 1.0, "+0"), (math.nan, 1.0, "not comparable")],
)
def test_difference_to_the_baseline_is_formatted(value: float, baseline: float, message: str):
    assert environment().filters["change"](value, baseline) == message


def test_logs_in_the_folder_of_the_page_are_linked(tmp_path: Path):
    write_run(tmp_path)
    logs = tmp_path / "logs" / "r1"
    logs.mkdir(parents=True)
    (logs / "Trainer.log").write_text("step 30")
    (logs / "run.json").write_text(
        '{"run": "r1", "state": "done", "started": 1, "updated": 3, "nodes": {"Trainer": '
        f'{{"state": "done", "seconds": 2.0, "log": "{logs}/Trainer.log", "upstream": []}}}}}}'
    )
    assert ("href", "Trainer.log") in Parsed(render_page(tmp_path)).attributes
    distant_page = render(content_of(tmp_path), tmp_path)
    assert ("href", "Trainer.log") not in Parsed(distant_page).attributes


def test_statistics_of_a_stock_transform_are_ignored(tmp_path: Path):
    writer = Writer(tmp_path / "metadata.db")
    before = [writer.artifact("ExampleStatistics", str(tmp_path / "pre_transform_stats"))]
    writer.execution("r1", "Transform", outputs=before)
    write_run(tmp_path, "r1", writer)
    after = [writer.artifact("ExampleAnomalies", str(tmp_path / "post_transform_anomalies"))]
    writer.execution("r1", "Transform", outputs=after)
    result = content_of(tmp_path)
    assert (list(result.columns), result.judged) == (["train", "eval"], ["train", "eval"])
    assert {anomaly.column for anomaly in result.anomalies} == {"fare"}


def test_live_page_polls_only_its_own_address(tmp_path: Path):
    write_run(tmp_path)
    file_page, live_page = (render(content_of(tmp_path), tmp_path, tag) for tag in ("", "0123"))
    assert "<script" not in file_page
    assert '<meta name="version" content="0123">' in live_page
    for page in (file_page, live_page):
        allowed = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
        assert allowed
        for kind in ("style", "script"):
            texts = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
            digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
            assert re.findall(rf"{kind}-src 'sha256-([^']*)'", allowed[1]) == digests


def test_approver_of_a_version_is_shown_and_escaped(tmp_path: Path):
    writer = write_run(tmp_path)
    name = "<script>alert(1)</script>"
    facts = {"approved_by": name, "approved_at": "2026-11-30T19:00:00+00:00", "approval_note": "looked at the slices"}
    pushed = writer.artifact("PushedModel", pushed=1, pushed_destination="/gone/7", pushed_version="7", **facts)
    writer.execution("r1", "Pusher", outputs=(pushed,))
    page = Parsed(render_page(tmp_path))
    assert f"approved by {name} approved at 2026-11-30T19:00:00+00:00 note looked at the slices" in page.text
    assert "script" not in page.tags


def test_model_that_waits_for_an_approval_is_shown(tmp_path: Path):
    writer = write_run(tmp_path)
    writer.execution("r1", "Pusher", outputs=(writer.artifact("PushedModel", pushed=0, approval="pending"),))
    text = Parsed(render_page(tmp_path)).text
    assert "pushed version waits for an approval" in text
    assert "it waits for an approval: python runner.py models approve r1 --by NAME --note TEXT" in text


@pytest.mark.parametrize("is_signed", [True, False])
def test_pushed_version_is_shown_with_its_manifest(tmp_path: Path, is_signed: bool):
    folder = tmp_path / "pushed" / "7"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"model")
    manifest = version_manifest.write(folder, PROVENANCE.model_copy(update={"version": 7}))
    if is_signed:
        (folder / version_manifest.MODEL_SIGNATURE).write_text("{}")
    writer = write_run(tmp_path)
    pushed = writer.artifact("PushedModel", pushed=1, pushed_destination=str(folder), pushed_version="7")
    writer.execution("r1", "Pusher", outputs=(pushed,))
    text = Parsed(render_page(tmp_path)).text
    assert f"version 7 folder {folder} pushed at {manifest.created}" in text
    assert f"files 1, 5 bytes digest {manifest.digest} signed {'yes, by model.sig' if is_signed else 'no'}" in text
