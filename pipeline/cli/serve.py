"""`runner.py serve`: serve the pushed model on this machine with TensorFlow Serving's REST and gRPC APIs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.compat.tensorflow import ENVIRONMENT, QUIET
from components.pusher import serving_state
from components.pusher.rollout.write import FOLDER
from components.results import request_schema
from components.results.log_secret import SECRET_ENVIRONMENT, read_secret
from components.results.model_signature import PUBLIC_KEY_ENVIRONMENT
from components.results.request_schema import RequestSchema
from components.serving.config import ServingConfig
from components.serving.log_options import parse_bytes, parse_days, parse_private, parse_share
from pipeline.cli.options import add_models, find_push_folder, get_push_folder, load_config
from pipeline.registry.versions import PushFolder

HELP = (
    "Serve the pushed versions on this machine, as TensorFlow Serving would: REST and gRPC, batching, labels, new "
    "versions as they are pushed or promoted. For trials and tests; in production, start TensorFlow Serving (deploy/)."
)
EXAMPLE = "python runner.py serve --output out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: only this machine)")
    parser.add_argument(
        "--rest-port", type=int, default=8501, help="port of the REST API (default: 8501; 0: any free port)"
    )
    parser.add_argument(
        "--grpc-port", type=int, default=8500, help="port of the gRPC API (default: 8500; 0: any free port)"
    )
    parser.add_argument("--allow-unverified", action="store_true", help="also serve versions without a manifest.json")
    parser.add_argument(
        "--isolate-versions",
        action="store_true",
        help="load each version in a process of its own, as serving.isolate_versions does",
    )
    parser.add_argument("--no-batching", action="store_true", help="do not batch requests")
    parser.add_argument(
        "--max-batch", type=int, default=64, metavar="ROWS", help="maximum rows per batch (default: 64)"
    )
    parser.add_argument(
        "--batch-wait",
        type=float,
        default=2.0,
        metavar="MS",
        help="time that a request waits for its batch (default: 2)",
    )
    parser.add_argument(
        "--log", metavar="FOLDER", help="folder for a log of requests and responses, as PredictionLog records"
    )
    parser.add_argument(
        "--log-key",
        metavar="COLUMN",
        default="",
        help="column that requests may contain in addition; the log records it, the model does not read it",
    )
    parser.add_argument(
        "--log-rate",
        type=parse_share,
        default=1.0,
        metavar="SHARE",
        help="share of the requests to log, from 0 to 1 (default: 1)",
    )
    parser.add_argument(
        "--log-private",
        type=parse_private,
        action="append",
        default=[],
        metavar="COLUMN=ACTION",
        help="hash or drop the values of a column in the log, as in `user=hash`; may be repeated, and adds to "
        f"monitor.private of the config; hash needs a secret in the environment variable {SECRET_ENVIRONMENT}",
    )
    parser.add_argument(
        "--log-max-bytes",
        type=parse_bytes,
        default=1 << 30,
        metavar="BYTES",
        help="maximum size of the log; the oldest files are deleted (default: 1 GiB)",
    )
    parser.add_argument(
        "--log-max-days",
        type=parse_days,
        default=90.0,
        metavar="DAYS",
        help="maximum age of a file of the log; older files are deleted (default: 90)",
    )


def run(options: argparse.Namespace) -> int:
    """Replace this process by the server; this function does not return.

    Raises:
      InputError: The push folder is a URL, or does not contain a version; or the model does not have a private column,
        or the secret of hashes is missing.
    """
    config = None if options.models is not None else load_config(options).config
    push_folder = find_push_folder(options) if config is None else get_push_folder(config)
    command = [sys.executable, "-m", "components.serving.server", *_make_model_flags(push_folder)]
    command += [f"--host={options.host}", f"--port={options.grpc_port}", f"--rest_api_port={options.rest_port}"]
    serving = ServingConfig() if config is None else config.serving
    if options.isolate_versions or serving.isolate_versions:
        command += _make_isolation_flags(serving)
    if options.allow_unverified:
        command.append("--allow_unverified")
    if not options.no_batching:
        microseconds = round(options.batch_wait * 1000)
        command += ["--enable_batching", f"--max_batch_size={options.max_batch}"]
        command += [f"--batch_timeout_micros={microseconds}"]
    if options.log:
        command += [f"--request_log={options.log}", f"--request_log_rate={options.log_rate}"]
        command += [
            f"--request_log_max_bytes={options.log_max_bytes}",
            f"--request_log_max_days={options.log_max_days}",
        ]
    # Pass the key even without a log, so that the server does not reject clients that send it.
    if options.log_key:
        command.append(f"--request_log_key={options.log_key}")
    environment = {**ENVIRONMENT, **QUIET, **os.environ}
    if options.log:
        monitoring = None if config is None else config.section("monitor")
        private = {**(monitoring.private if monitoring else {}), **dict(options.log_private)}
        _check_private_columns(push_folder, private, options.log_key)
        command += [f"--request_log_private={name}={action}" for name, action in private.items()]
        if "hash" in private.values():
            secret = read_secret(os.environ, monitoring.secret_env if monitoring else SECRET_ENVIRONMENT)
            environment[SECRET_ENVIRONMENT] = secret.decode()
    # PYTHONPATH instead of a change of the working directory, because the paths on the command line may be relative.
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    if push_folder.public_key is not None:
        environment[PUBLIC_KEY_ENVIRONMENT] = str(push_folder.public_key)
    os.execve(sys.executable, command, environment)


def _check_private_columns(push_folder: PushFolder, private: Mapping[str, str], key: str) -> None:
    """Refuse the name of a private column that the newest version does not know: its values would be logged.

    Args:
      push_folder: The push folder. Models of other projects do not describe their columns and are not checked.
      private: Private columns and their actions.
      key: Name of the column that is only logged, or "".

    Raises:
      InputError: The model does not have one of the columns.
    """
    newest = max(serving_state.versions(push_folder.path))
    path = Path(push_folder.path, str(newest), request_schema.FILE)
    if not private or not path.exists():
        return
    schema = RequestSchema.model_validate_json(path.read_bytes())
    known = {*schema.columns, *schema.other_columns, *([key] if key else [])}
    for name in private:
        if name not in known:
            raise InputError(
                f"private columns: expected a column of version {newest}, received {name!r}{did_you_mean(name, known)}",
                "correct its name in --log-private or monitor.private, or name the column with --log-key",
            )


def _make_isolation_flags(settings: ServingConfig) -> list[str]:
    limit = [] if settings.max_version_mb is None else [f"--max_version_bytes={settings.max_version_mb << 20}"]
    return ["--isolate_versions", *limit]


def _make_model_flags(push_folder: PushFolder) -> list[str]:
    if push_folder.is_remote:
        raise InputError(
            f"expected a folder on this machine, received {push_folder.path}",
            f"copy them: `python runner.py models mirror --models {push_folder.path} --into FOLDER`; serve that folder",
        )
    if not serving_state.versions(push_folder.path):
        raise InputError(
            f"{push_folder.path} has no version to serve",
            "push one with a run, or name the folder of the runs with --output DIR",
        )
    rollout = Path(push_folder.path) / FOLDER / "models.config"
    if rollout.exists():
        return [f"--model_config_file={rollout}"]
    name = (
        push_folder.settings.model_name
        if push_folder.settings and push_folder.settings.model_name
        else Path(push_folder.path).name
    )
    return [f"--model_name={name}", f"--model_base_path={push_folder.path}"]
