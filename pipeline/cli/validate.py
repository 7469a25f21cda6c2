"""`runner.py validate`: check a config, and its columns against the data, without TensorFlow in this process."""

from __future__ import annotations

import argparse
import sys

from pipeline.authoring.config import Config
from pipeline.authoring.preflight import check_data, check_place
from pipeline.cli.options import add_config, load_config, warn_of_unread_files

HELP = "Check a config, and its columns against the data."
EXAMPLE = "python runner.py validate --config configs/mine.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)


def _format_labels(config: Config) -> str:
    labels = config.data.declared_labels
    if not labels[0].text:
        return "no label"
    words = ", ".join(f"{label.name} {label.text!r}".lstrip() for label in labels)
    return f"label{'s' if len(labels) > 1 else ''} {words}"


def run(options: argparse.Namespace) -> int:
    loaded = load_config(options)
    check_data(loaded)
    check_place(loaded)
    warn_of_unread_files(loaded)
    config = loaded.config
    features = (
        config.features.preprocessing_fn or f"{len(config.features.columns) + len(config.features.crosses)} features"
    )
    sys.stdout.write(
        f"{loaded.document.name}: valid. {features}, {_format_labels(config)} ({config.data.task}), "
        f"model {config.model.function or config.model.kind}\n"
    )
    return 0
