"""`runner.py validate`: checks a config, and its columns against the data, without TensorFlow."""

from __future__ import annotations

import argparse
import sys

from pipeline.authoring.preflight import check_data
from pipeline.cli.options import add_config, load_config

HELP = "Check a config, and its columns against the data."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    loaded = load_config(options)
    check_data(loaded)
    config = loaded.config
    features = (
        config.features.preprocessing_fn or f"{len(config.features.columns) + len(config.features.crosses)} features"
    )
    sys.stdout.write(
        f"{options.config}: valid. {features}, label {config.data.label!r} ({config.data.task}), "
        f"model {config.model.run_fn or config.model.build or config.model.kind}\n"
    )
    return 0
