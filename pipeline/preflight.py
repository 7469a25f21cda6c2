"""What can be told in a moment before a run: columns, schema, folders, metadata store, disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from components.data_gate import schema as schemas
from components.errors import InputError, MachineError
from components.features.config import Embedded
from components.ingest import inputs
from components.pusher import state
from components.pusher.target import check_writable, is_remote
from components.version import signing_key
from pipeline import doctor
from pipeline.config import Config, Loaded
from pipeline.config.check import of_columns, of_dtypes
from pipeline.config.problems import Problem
from pipeline.engines import reachable
from pipeline.metadata.check import check_store
from pipeline.paths import Paths, shown

_LEAST_FREE_MB = 200
"""Examples are written twice (raw and transformed), then a model and logs; with less, a run would end half-way."""


_EXAMPLES = {"data/taxi": "taxi", "data/clicks/clicks.csv": "clicks", "data/digits": "digits"}
"""Data of the shipped configs → the module that makes it; it is no part of a clone."""


def check(loaded: Loaded) -> None:
    """Everything that would end the run later, and can be told now.

    Raises:
      InputError: the data, the schema or a folder does not fit the config, or the engine is not to be reached.
      MachineError: the metadata store does not open, or the disk is full.
    """
    check_data(loaded)
    loaded.refuse(_of_tables(loaded.config, doctor.memory()[0]))
    paths = Paths.of(loaded.config)
    _check_output(paths)
    reachable.check(loaded.config, paths)
    check_store(paths.store)
    check_writable(paths.pushed)
    signing_key(os.environ, loaded.config.push.signing_key_env)
    if not is_remote(paths.pushed):
        state.read(paths.pushed)


def check_data(loaded: Loaded) -> None:
    """Holds the config against the columns of its data and of its schema.

    Raises:
      InputError: naming every column that does not fit, with the line of the config.
    """
    config = loaded.config
    for path in config.data.path:
        _check_example(path)
    columns = inputs.columns(config.data)
    if columns is None:
        return
    problems = of_columns(config, columns)
    if config.schema_.path:
        problems += _of_schema(config, config.schema_.path, columns)
    loaded.refuse(problems)


def _of_tables(config: Config, memory: int) -> list[Problem]:
    """Tables of ids that take more bytes than the memory that this machine has, if it is the one that trains.

    What is known before the data is: of a vocabulary, `size` is only the most that it can have.
    """
    if config.model.run_fn or config.training.cluster != "local":
        return []
    sizes = [
        (feature.op.rows * _row_bytes(config, feature.op), feature)
        for feature in config.features.declared
        if isinstance(feature.op, Embedded)
    ]
    whole = sum(size for size, _ in sizes)
    if whole <= memory:
        return []
    largest, feature = max(sizes, key=lambda pair: pair[0])
    return [
        Problem(
            ("features", *feature.key),
            f"the embeddings of all features take {whole / _GIB:,.1f} GiB in training, that of {feature.name!r} "
            f"{largest / _GIB:,.1f}, and this machine has {memory / _GIB:,.1f}; lower its buckets, its embedding or "
            "model.embedding",
        )
    ]


_GIB = 2**30
_COPIES = 3
"""Adam holds two numbers beside each weight."""


def _row_bytes(config: Config, op: Embedded) -> int:
    """Bytes of a row in training, the weights that wide_deep and dlrm have for each id among them."""
    return (config.model.width(op.rows, op.embedding) + (config.model.kind in ("wide_deep", "dlrm"))) * 4 * _COPIES


def _check_example(path: str) -> None:
    if path in _EXAMPLES and not Path(path).exists():
        raise InputError(
            f"data.path: {path} does not exist yet: it is made from what is installed",
            f"make it with `make data`, or `python -m data.{_EXAMPLES[path]}`",
        )


def _of_schema(config: Config, path: str, columns: list[str]) -> list[Problem]:
    known = schemas.read(path)
    key = ("schema", "path")
    lacking = [name for name, column in known.items() if column.required and name not in columns]
    problems = [Problem(key, f"{path} requires a column {name!r}, and the data has none") for name in lacking]
    new = [name for name in columns if name not in known]
    problems += [Problem(key, f"the data has a column {name!r}, and {path} does not know it") for name in new]
    return problems + of_dtypes(config, {name: column.dtype for name, column in known.items() if column.dtype})


def _check_output(paths: Paths) -> None:
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to the output folder {paths.root}: {error.strerror}", "give another with --output DIR"
        ) from error
    free = shutil.disk_usage(paths.root).free // 2**20
    if free < _LEAST_FREE_MB:
        raise MachineError(
            f"the disk is nearly full: {free:,} MB free at {shown(paths.root)}, and a run needs {_LEAST_FREE_MB} MB",
            "free some space, or let the run write elsewhere with --output DIR",
        )
