"""`runner.py models`: list the pushed versions with their stages and the content of their manifests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from pipeline.cli.options import add_models, find_push_folder, get_push_folder, load_config, open_config_store
from pipeline.cli.output import make_table, print_json, show
from pipeline.core.text import describe_approval, plain
from pipeline.registry import approval, versions
from pipeline.registry.approval import PendingModel

if TYPE_CHECKING:
    from pipeline.authoring.config import Config

HELP = (
    "List the pushed versions, newest first: stage, run, metrics, size, digest; and the models that wait for an "
    "approval."
)
_PENDING_SHOWN = 5
EXAMPLE = "python runner.py models list --output out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the history, and nothing else")


def run(options: argparse.Namespace) -> int:
    pending: list[PendingModel] = []
    if options.models is None:
        config = load_config(options).config
        push_folder = get_push_folder(config)
        if config.push.approval == "required":
            pending = _list_pending(config)
    else:
        # Without a config, the metadata store is unknown.
        push_folder = find_push_folder(options)
    rows = versions.list_versions(push_folder)
    if options.json:
        stages = push_folder.state().model_dump(mode="json", by_alias=True, include={"stable", "canary", "history"})
        listing = {"folder": push_folder.path, **stages, "versions": [asdict(row) for row in rows]}
        print_json({**listing, "pending": [asdict(model) for model in pending]})
        return 0
    if rows:
        _show(rows)
    else:
        sys.stdout.write(f"{push_folder.path}: no version was pushed yet\n")
    for model in pending[:_PENDING_SHOWN]:
        created = model.created.removesuffix("+00:00")
        show(f"run {plain(model.run)}, {created}, {_format_metrics(model.metrics)}: {describe_approval(model.run)}")
    if len(pending) > _PENDING_SHOWN:
        show(f"… {len(pending) - _PENDING_SHOWN} older models wait too; --json lists them")
    return 0


def _list_pending(config: Config) -> list[PendingModel]:
    from pipeline.core.metadata.location import exists

    if not exists(config.paths().store):
        return []
    return approval.list_pending(open_config_store(config).store, config.pipeline.name)


def _format_metrics(metrics: Mapping[str, float] | None) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in list((metrics or {}).items())[:2])


def _show(rows: list[versions.VersionListEntry]) -> None:
    columns = ["version", "stage", "pushed", "run", "metrics", "size", "digest", "manifest"]
    with_approvals = any(row.approval for row in rows)
    table = make_table(*columns, *(["approved by"] if with_approvals else []))
    for row in rows:
        table.add_row(
            str(row.version),
            row.stage,
            (row.created or "").removesuffix("+00:00"),
            row.run or "",
            _format_metrics(row.metrics),
            "" if row.bytes is None else f"{row.bytes / 1e6:.1f} MB",
            (row.digest or "")[:12],
            row.manifest,
            *([plain(row.approval["by"] if row.approval else "")] if with_approvals else []),
        )
    show(table, *(row.problem for row in rows if row.problem))
