"""`runner.py runs show RUN`: show a run, node by node."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from components.base.errors import InputError
from components.base.names import did_you_mean
from pipeline.cli import options as shared
from pipeline.cli.output import make_table, print_json, show
from pipeline.cli.run_output import render_result
from pipeline.core.nodes import NODES_WITH_RESULT
from pipeline.core.text import format_duration, format_time, plain

HELP = "Show a run: its nodes with state, time, memory, inputs, outputs, parameters, attempts and logs."
EXAMPLE = "python runner.py runs show latest --node Trainer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_run(parser)
    parser.add_argument("--node", metavar="NODE", help="only this node, with its parameters and attempts")
    parser.add_argument(
        "--resources",
        action="store_true",
        help="print a section kubeflow.resources that covers what the nodes have used",
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection import run_history, run_summary

    opened, [selected] = shared.open_runs(options, options.run)
    description = run_history.describe_run(opened.store, opened.logs, selected)
    nodes = description["nodes"]
    if options.resources:
        return _show_resources(description)
    results = run_summary.read_results(opened.store, selected.name)
    if options.node is not None and options.node not in nodes:
        raise InputError(
            f"run {description['run']} has no node {options.node!r}{did_you_mean(options.node, nodes)}",
            "name one of its nodes",
        )
    if options.json:
        json_results = {name: NODES_WITH_RESULT[name].to_json(result) for name, result in results.items()}
        facts = {
            "store": str(opened.location.absolute() if isinstance(opened.location, Path) else opened.location),
            "config": opened.store.config(selected.name),
            "summary": run_summary.summarize(opened.store, selected.name).to_json(),
            "results": json_results,
        }
        print_json({**description, **facts} if options.node is None else nodes[options.node])
    elif options.node is not None:
        _show_node(options.node, nodes[options.node])
    else:
        _show_run(description)
        for name, result in results.items():
            for finding in NODES_WITH_RESULT[name].list_findings(result):
                show(plain(finding, 2000))
            if result_table := NODES_WITH_RESULT[name].tabulate(result):
                show(render_result(result_table))
    return 0


def _show_resources(description: dict[str, Any]) -> int:
    import yaml

    from pipeline.inspection.measured_resources import suggest_resources

    resources = suggest_resources(description["nodes"])
    if not resources:
        raise InputError(
            f"--resources: expected a run with a node that ran, received {description['run']}",
            "name another run, for example the first one, in which no node came from the cache",
        )
    lines = [
        f"    {name}: {yaml.safe_dump(values, default_flow_style=True).strip()}" for name, values in resources.items()
    ]
    show(f"# measured in run {description['run']}", "kubeflow:", "  resources:", *lines)
    return 0


def _show_run(description: dict[str, Any]) -> None:
    nodes = make_table("node", "state", "took", "CPU s", "peak MB", "rows", "attempts", "read", "made")
    for name, node in description["nodes"].items():
        nodes.add_row(
            name,
            node["state"],
            format_duration(node["seconds"]),
            "" if node["cpu_seconds"] is None else f"{node['cpu_seconds']:.1f}",
            "" if node["peak_memory_mb"] is None else f"{node['peak_memory_mb']:.0f}",
            "" if node["rows"] is None else f"{node['rows']:,}",
            "" if node["attempts"] is None else str(node["attempts"]),
            _format_artifacts(node["inputs"]),
            _format_artifacts(node["outputs"]),
        )
    subject = f"run {description['run']} of {description['pipeline']}"
    head = f"{subject}: {description['state']}, {format_time(description['started'])}"
    show(f"{plain(head)}, {format_duration(description['seconds'])}", nodes)
    for key in ("verdict", "pushed_version", "error", "logs"):
        if description[key]:
            show(f"{key.replace('_', ' ')}: {plain(description[key], 2000)}")


def _show_node(name: str, node: dict[str, Any]) -> None:
    show(f"{name}: {node['state']}, {format_duration(node['seconds'])}")
    for key in ("inputs", "outputs"):
        rows = make_table(key, "artifact", "type", "folder")
        for artifact in node[key]:
            rows.add_row(artifact["key"], str(artifact["id"]), artifact["type"], plain(artifact["uri"]))
        if rows.row_count:
            show(rows)
    parameters = make_table("parameter", "value")
    for parameter, value in node["parameters"].items():
        parameters.add_row(plain(parameter), plain(value, 400))
    if parameters.row_count:
        show(parameters)
    attempts = make_table("attempt", "ended", "state", "took", "error")
    for attempt in node["tries"]:
        error = (attempt["error"] or {}).get("headline", "")
        took = format_duration(attempt["seconds"])
        attempts.add_row(
            str(attempt["attempt"]), format_time(attempt["ended"]), attempt["state"], took, plain(error, 400)
        )
    if attempts.row_count:
        show(attempts)
    if node["log"]:
        show(f"log: {plain(node['log'], 1000)}")


def _format_artifacts(artifacts: list[dict[str, Any]]) -> str:
    return ", ".join(f"{artifact['key']} {artifact['id']}" for artifact in artifacts)
