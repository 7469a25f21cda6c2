"""`runner.py predict`: predict the rows of files with a pushed version, or with any SavedModel."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.base.errors import InputError
from components.base.files import is_remote
from components.pusher.local_folder import local_copy
from components.results import model_signature, version_manifest
from components.results.version_manifest import MODEL_SIGNATURE, Folder, LocalFolder
from pipeline.cli import options as shared
from pipeline.core.text import format_join

if TYPE_CHECKING:
    from components.predictor.batch_prediction import Predictions
    from components.predictor.bigquery_table import NewTable
    from components.results.version_manifest import Manifest
    from pipeline.authoring.config import Config, Loaded

_BIGQUERY = "bigquery"
HELP = "Predict the rows of files with a pushed version, or with any SavedModel."
EXAMPLE = "python runner.py predict --data data/new.csv --into out/predictions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="MODEL",
        default="",
        help="NAME@VERSION, NAME@stable or NAME@canary, where NAME is the name of the config's model; or the folder "
        "of a SavedModel (default: the stable version)",
    )
    parser.add_argument("--data", metavar="PATTERN", action="append", required=True, help="the rows, as data.path")
    parser.add_argument(
        "--into",
        metavar="DIR",
        required=True,
        help="new folder for the predictions; with --format bigquery a new table, PROJECT.DATASET.TABLE",
    )
    parser.add_argument(
        "--format", choices=("parquet", "csv", "tfrecord", _BIGQUERY), default="parquet", help="default: parquet"
    )
    parser.add_argument(
        "--temp-location",
        metavar="URL",
        help="gs:// folder for the files that BigQuery loads (default: Dataflow's temp_location if the engine is "
        "dataflow; otherwise this machine uploads the files)",
    )
    parser.add_argument(
        "--columns", metavar="NAME,...", default="", help="columns of the rows to write next to the predictions"
    )
    parser.add_argument(
        "--signature",
        metavar="NAME",
        help="the signature to call (default: raw if the model has it, otherwise serving_default)",
    )
    # The config also says how rows are read, so it is loaded with --models as well. It is not loaded for the folder of
    # a SavedModel, unless --config or --output is present.
    shared.add_models(parser)
    shared.add_engine(parser)
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.cli.output import print_json, show, suppress_native_stderr

    location = options.temp_location
    if location and (options.format != _BIGQUERY or not location.startswith("gs://")):
        raise InputError(
            f"--temp-location: expected a gs:// folder and --format bigquery, received {location}",
            "see python runner.py predict --help",
        )
    loaded, table = _load_config(options), None
    config = loaded.config if loaded else None
    if options.format == _BIGQUERY:
        from components.predictor import bigquery_table

        # Check the table first, because the other checks take longer.
        table = bigquery_table.NewTable(bigquery_table.parse(options.into))
    model, title, provenance = _select_model(options, loaded)
    with suppress_native_stderr(), local_copy(model) as folder:
        predictions, job = _predict(options, config, folder, provenance, table)
    if options.json:
        load_job = {} if job is None else {"job": job}
        print_json({"output": options.into, "model": provenance, **vars(predictions), **load_job})
        return 0
    location_text = "in quarantine" if job is None else "bad and not kept"
    quarantined = f", {predictions.quarantined:,} {location_text}" if predictions.quarantined else ""
    rows = f"{'from' if config and config.data.windows else 'of'} {predictions.rows:,} rows"
    show(
        f"{options.into}: {title} predicted {predictions.predicted:,} {rows}{quarantined}",
        *(f"  {format_join(join)}" for join in predictions.joins),
        *(f"  {name}: {type_}" for name, type_ in predictions.columns.items()),
    )
    return 0


def _predict(
    options: argparse.Namespace, config: Config | None, model: str, provenance: dict[str, Any], table: NewTable | None
) -> tuple[Predictions, str | None]:
    """Predict the rows.

    Args:
      options: The parsed command line.
      config: The config; None for a SavedModel without a config.
      model: Folder of the SavedModel.
      provenance: Description of the model for the manifest of the predictions.
      table: BigQuery table to create; None to write files.

    Returns:
      Counts and columns of the predictions, and the ID of the BigQuery job that loaded them (None without a table).
    """
    # Imported late, because it imports TensorFlow and Beam.
    from components.ingest.config import DataConfig
    from pipeline.authoring.config.runtime import RuntimeConfig
    from pipeline.orchestration import prediction

    paths = tuple(options.data)
    # DataConfig requires a label, but predictions do not read it.
    data = config.data_of(paths, is_predicted=True) if config else DataConfig(label="none", path=paths)
    runtime = config.runtime if config else RuntimeConfig()
    columns = tuple(name for name in options.columns.split(",") if name)
    inputs = (model, provenance, data, runtime)
    if table is not None:
        dataflow = runtime.dataflow.temp_location if runtime.engine == "dataflow" and runtime.dataflow else None
        location = options.temp_location or dataflow
        return prediction.predict_to_table(*inputs, table, location, columns=columns, signature=options.signature)
    predictions = prediction.predict(
        *inputs, options.into, columns=columns, format_=options.format, signature=options.signature
    )
    return predictions, None


def _load_config(options: argparse.Namespace) -> Loaded | None:
    """Load the config; return None if --model is the folder of a SavedModel, and no option selects a config."""
    if options.config is None and options.output is None and _is_folder(options.model):
        if options.set or options.models:
            raise InputError("--set and --models: expected --config as well, received none", "add --config")
        return None
    return shared.load_config(options)


def _is_folder(model: str) -> bool:
    return is_remote(model) or os.sep in model or Path(model, "saved_model.pb").exists()


def _verify(folder: str, config: Config | None) -> Manifest | None:
    """Verify a pushed version against its manifest.

    Args:
      folder: Path or URL of the version.
      config: The config, which names the variable of the public key; None to use the default variable.

    Returns:
      The manifest; None for a SavedModel without a manifest, which was not pushed by this project.

    Raises:
      InputError: A file differs from the manifest, or model.sig does not match the public key.
    """
    version_folder: Folder = LocalFolder(folder)
    if is_remote(folder):
        # Imported late, because it imports TFX's file systems.
        from components.pusher.remote_folder import FileioFolder

        version_folder = FileioFolder(folder)
    try:
        version_folder.open(version_manifest.NAME).close()
    except FileNotFoundError:
        return None
    # Users may have copied the version to a folder that is not named after its number.
    manifest = version_manifest.verify(version_folder, any_name=True)
    public_key = model_signature.key_file(os.environ, *([config.push.model_signing.public_key_env] if config else []))
    if public_key is not None:
        if is_remote(folder):
            remedy = "verify a copy on this machine, or unset the variable of push.model_signing.public_key_env"
            raise InputError(f"{folder}: expected a local folder to verify its {MODEL_SIGNATURE}", remedy)
        model_signature.verify(folder, public_key)
    return manifest


def _select_model(options: argparse.Namespace, loaded: Loaded | None) -> tuple[str, str, dict[str, Any]]:
    """Verify and return the model that --model names.

    Returns:
      Folder of the model, its name for messages, and its description for the manifest of the predictions.

    Raises:
      InputError: --model names another model than the config, or the version does not exist or differs from its
        manifest.
    """
    config = loaded.config if loaded else None
    if loaded is None or config is None or _is_folder(options.model):
        folder = options.model
        manifest = _verify(folder, config)
        identity = {} if manifest is None else {"version": manifest.version, "digest": manifest.digest}
        return folder, folder, {"folder": folder, **identity}
    name, reference = shared.split_model_name(options.model, loaded)
    push_folder = shared.get_push_folder(config) if options.models is None else shared.find_push_folder(options)
    number = push_folder.resolve(reference)
    manifest, folder = push_folder.verify(number), str(push_folder.find(number))
    provenance = {"name": name, "version": number, "digest": manifest.digest, "folder": folder}
    return folder, f"{name}@{number}", provenance
