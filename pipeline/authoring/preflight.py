"""Checks before a run, in milliseconds and without TFX: columns, schema, folders, disk and metadata store."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from components.base import limits, object_store
from components.base.child_process import WaitingProcess
from components.base.config_section import Problem
from components.base.errors import InputError, MachineError
from components.base.files import is_remote
from components.base.memory import memory
from components.base.processes import describe_exit
from components.data import file_io
from components.data_gate import schema_columns as schemas
from components.features.vector_file import read_vectors
from components.ingest import input_files, readers, spans
from components.ingest.config import DataConfig
from components.pusher import serving_state
from components.pusher.local_folder import check_writable
from components.pusher.store import private_key_file
from components.trainer import table_memory
from pipeline.authoring.config import Config, Loaded
from pipeline.authoring.config.cross_checks import check_columns, check_dtypes
from pipeline.authoring.plans import training_plan
from pipeline.core.metadata.location import Location, exists
from pipeline.core.metadata.sql import NoTablesError, Tables
from pipeline.core.paths import Paths
from pipeline.core.text import display_path

_COLUMNS_REMEDY = "name those to read in data.columns"
_LEAST_FREE_MB = 200
"""Minimum free disk space in MB. A run writes examples twice (raw and transformed), a model and logs."""


def check(loaded: Loaded) -> None:
    """Check everything that can be checked now and would otherwise fail the run later.

    Raises:
      InputError: If the data, the schema or a folder does not fit the config.
      MachineError: If the metadata store cannot be opened, or if the disk is full.
    """
    paths = loaded.config.paths()
    _check_stores(loaded.config, paths)
    check_data(loaded)
    check_tables(loaded)
    check_place(loaded)
    _check_output(paths)
    _check_visible(loaded.config, str(paths.artifacts))
    check_store(paths.store)
    check_writable(paths.pushed)
    private_key_file(os.environ, loaded.config.push, paths.pushed)
    if not is_remote(paths.pushed):
        serving_state.read(paths.pushed)


def _check_stores(config: Config, paths: Paths) -> None:
    """Check that the packages for s3:// and az:// are installed.

    Raises:
      InputError: If a package is missing.
    """
    places = [
        *config.data.places,
        ("push.directory", paths.pushed),
        ("runtime.artifacts", config.runtime.artifacts or ""),
    ]
    for field, path in places:
        object_store.check_installed(field, path)


def check_tables(loaded: Loaded) -> None:
    """Check that the tables of IDs fit into the memory of the tasks that train.

    Raises:
      InputError: If the tables need more memory than the tasks have.
    """
    loaded.refuse(_check_table_memory(loaded.config, memory()[0]))


def check_place(loaded: Loaded) -> None:
    """Check that the patterns of `training.strategy.place` match the layers of the network.

    Building the network takes seconds, in another process, so nothing is done without patterns.

    Raises:
      InputError: If a pattern does not match, or if the order of the layers does not fit.
      MachineError: If the process fails.
    """
    config = loaded.config
    if not config.training.strategy.place or config.model.run_fn:
        return
    process = WaitingProcess("components.trainer.placement_process", fork=False)
    process.run(training_plan(config).model_dump_json())
    if code := process.wait():
        raise MachineError(
            f"the process that builds the network {describe_exit(code)}: {process.output()[-500:]}",
            "run it again; if it fails again, remove training.strategy.place",
        )
    if message := process.result():
        loaded.refuse([Problem(("training", "strategy", "place"), message)])


def check_data(loaded: Loaded) -> None:
    """Check the config against the columns of its data and of its schema.

    Raises:
      InputError: If columns do not fit. The error lists all of them, with the lines of the config.
    """
    config = loaded.config
    _check_generated(config.data)
    problems = [*_check_optional_nodes(config), *_check_features(config)]
    columns = readers.columns(config.data)
    if columns is None:
        loaded.refuse(problems)
        return
    problems += check_columns(config, columns)
    if len(columns) > limits.MOST_COLUMNS:
        text = f"expected at most {limits.MOST_COLUMNS:,} columns, received {len(columns):,}; {_COLUMNS_REMEDY}"
        problems.append(Problem(("data", "path"), text))
    if config.schema_.path:
        problems += _compare_schema(config, config.schema_.path, columns)
    loaded.refuse(problems)
    # Read the columns of the whole source last, because the checks above report missing columns more clearly.
    readers.columns(config.source())


def _check_optional_nodes(config: Config) -> Iterator[Problem]:
    """Yield problems with the columns of the rows that optional nodes read in addition to `data`."""
    for node in config.optional_nodes():
        data = node.find_data(config)
        if data is not None:
            with input_files.errors_about(f"{node.section}.path"):
                columns = readers.columns(data) or []
            yield from node.check_columns(config, columns)


def _check_features(config: Config) -> Iterator[Problem]:
    """Yield a problem if the features read more columns than a model can have as inputs, and unfit files of vectors."""
    count = 0 if config.features.preprocessing_fn else len(config.features.columns_read)
    if count > limits.MOST_FEATURE_COLUMNS:
        text = f"expected features of at most {limits.MOST_FEATURE_COLUMNS:,} columns, received {count:,}"
        yield Problem(("features", "columns"), f"{text}; remove those that predict least")
    for key, path, width in config.features.list_vector_files():
        try:
            read_vectors(path, width, most=1)
        except InputError as error:
            yield Problem(key, f"{error.headline}; {error.remedy}")


def _check_table_memory(config: Config, memory: int) -> list[Problem]:
    """Return a problem if the tables of IDs need more memory than the tasks of the training have.

    The sizes of vocabularies are not known before the data is read, so vocabularies count as empty. The Trainer checks
    again when it knows them.

    Args:
      config: Config of the pipeline.
      memory: Memory of this machine, in bytes.
    """
    if config.model.run_fn:
        return []
    plan = training_plan(config)
    tables = table_memory.find_tables(plan, graph=None, most=False)
    reason = table_memory.find_misfit(config.training, tables, memory)
    if not reason:
        return []
    largest = max(tables, key=lambda table: table.bytes)
    feature = next(feature for feature in config.features.declared if feature.name == largest.feature)
    message = (
        f"{reason}; that of {largest.feature!r} has {largest.rows:,} rows of {largest.width} numbers: lower its "
        "buckets or its embedding, set its quotient_remainder, or lower model.embedding"
    )
    return [Problem(("features", *feature.key), message)]


def _check_generated(data: DataConfig) -> None:
    """Check that generated data exists. The remedy of the error is the config's, which names the generating command."""
    if data.remedy is None:
        return
    for path in data.path:
        if not is_remote(path) and not file_io.file_system(path).glob(spans.wildcards(path)):
            raise InputError(f"data.path: expected a file or folder at {path}, and there is none yet", data.remedy)


def _compare_schema(config: Config, path: str, columns: list[str]) -> list[Problem]:
    """Return differences between the columns of the data and of a curated schema, and problems with its types."""
    curated = schemas.read(path)
    key = ("schema", "path")
    missing = [name for name, column in curated.items() if column.required and name not in columns]
    problems = [Problem(key, f"{path} requires a column {name!r}, and the data has none") for name in missing]
    problems += _check_class_counts(config, path, curated)
    new = [name for name in columns if name not in curated]
    problems += [Problem(key, f"the data has a column {name!r}, and {path} does not list it") for name in new]
    return problems + check_dtypes(config, {name: column.dtype for name, column in curated.items() if column.dtype})


def _check_class_counts(config: Config, path: str, curated: Mapping[str, schemas.SchemaColumn]) -> list[Problem]:
    """Return problems with labels whose domain in the schema contains more classes than a model can have."""
    if config.data.task != "multiclass":
        return []
    problems = []
    for label in config.data.declared_labels:
        count = (curated[label.text].texts or 0) if label.text in curated else 0
        if count > limits.MOST_CLASSES:
            text = f"expected at most {limits.MOST_CLASSES:,} classes, received {count:,} in the domain in {path}"
            problems.append(Problem(label.key, text))
    return problems


def _check_visible(config: Config, artifacts: str) -> None:
    """Check that the tasks of `training.where` can read the run's artifacts."""
    where = config.training.where
    if where is None or is_remote(artifacts):
        return
    absolute = str(Path(artifacts).absolute())
    if where.kind == "vertex":
        raise InputError(
            f"training.where: expected artifacts in a bucket, which Vertex AI's tasks can read, received {absolute}",
            "set runtime.artifacts to gs://BUCKET/FOLDER",
        )
    if not where.mounts(absolute):
        raise InputError(
            f"training.where.volumes: expected a mount path that {absolute} is below, received "
            f"{', '.join(where.volumes) or 'none'}",
            "mount a volume there that this machine and the tasks share, or set runtime.output to such a folder",
        )


def _check_output(paths: Paths) -> None:
    """Check that the output folder can be created, and that its disk has enough free space for a run."""
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to the output folder {paths.root}: {error.strerror}", "give another with --output DIR"
        ) from error
    free = shutil.disk_usage(paths.root).free // 2**20
    if free < _LEAST_FREE_MB:
        raise MachineError(
            f"the disk is nearly full: {free:,} MB free at {display_path(paths.root)}, and a run needs "
            f"{_LEAST_FREE_MB} MB",
            "free some space, or let the run write elsewhere with --output DIR",
        )


_REMEDY = "move it away (its runs are lost to the pipeline), or name another folder with --output DIR"


def check_store(location: Location) -> None:
    """Check that a run can read and write a metadata store.

    A store that does not exist yet passes. Nothing is created or changed.

    Raises:
      MachineError: If the file is not an SQLite database, is damaged or cannot be written, if the server does not
        answer or refuses the user, or if the store has a different schema version from this release.
    """
    if isinstance(location, Path):
        _check_file(location)
    with contextlib.suppress(NoTablesError):
        if exists(location):
            Tables(location)


def _check_file(path: Path) -> None:
    """Check that a file is a writable SQLite database, or can be created."""
    if not path.exists():
        _check_parent(path)
        return
    if path.is_dir():
        raise MachineError(
            f"the metadata store {path} cannot be opened: expected a file, received a directory", _REMEDY
        )
    if not os.access(path, os.R_OK | os.W_OK):
        raise _unwritable(path)
    try:
        # mode=rw never creates a file. The query makes SQLite read the header of the file.
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=5)
        ) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise MachineError(f"the metadata store {path} cannot be opened: {error}", _REMEDY) from error


def _check_parent(path: Path) -> None:
    """Check that the nearest existing folder above a path is writable."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise MachineError(
            f"the metadata store {path} cannot be opened: {parent} is a file, expected a folder", _REMEDY
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise _unwritable(path)


def _unwritable(path: Path) -> MachineError:
    return MachineError(
        f"the metadata store {path} cannot be opened: this user may not write it",
        "give this user write permission, or name another folder with --output DIR",
    )
