"""The memory that tables of IDs need in each task of a training, and whether the machine or a pod provides it.

The rest of a task's memory is not included: TensorFlow itself, the networks' other weights, examples in memory.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.base.errors import InputError
from components.base.memory import memory
from components.features import feature_names, graph_files
from components.features.config import Feature
from components.models.table_sizes import QUOTIENTS, TableSize, table_sizes
from components.trainer.config import StrategyConfig, TrainingConfig
from components.trainer.plan import TrainingPlan

MOST_SHARDS = 1 << 10
"""Maximum number of shards of a table with `partitioner: max_size`."""
_GIB = 1 << 30
_QUANTITY = re.compile(r"([0-9.]+)([kMGTP]i?)?")
_UNITS = {"": 1} | {unit: 1000**power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate(("K", "M", "G", "T", "P"), 1)}


@dataclass(frozen=True)
class TaskMemory:
    """The memory of tables in tasks of the same kind.

    Attributes:
      task: `chief`, `worker`, `ps`, `process` or `device`.
      count: Number of tasks.
      bytes: Memory of one task in bytes; for ps, the maximum.
    """

    task: str
    count: int
    bytes: int


def compute_task_memory(strategy: StrategyConfig, tables: Sequence[TableSize], networks: int = 1) -> list[TaskMemory]:
    """Compute the memory per kind of task.

    Args:
      strategy: How training is distributed.
      tables: Tables of the model.
      networks: Number of networks that are trained, one per fold.

    Returns:
      The memory per kind of task. With parameter_server, a ps holds its shards and their moments, and the chief
      holds all weights once, when it exports the model. Every worker of multi_worker holds all tables. A mesh divides
      their columns or rows among the devices of a stage, which may be the same for all tables; its process also holds
      all tables on the host, for checkpoints.
    """
    total, weights = sum(table.bytes for table in tables), sum(table.weights for table in tables)
    if strategy.kind == "multi_worker":
        return [TaskMemory("worker", strategy.workers, total)]
    if strategy.kind == "mesh":
        rows = strategy.data if strategy.shard_optimizer else 1
        device_bytes = sum(
            (table.weights + (table.bytes - table.weights) // rows) // _count_parts(table, strategy.model)
            for table in tables
        )
        devices = strategy.data * strategy.stages * strategy.model
        return [TaskMemory("process", 1, total), TaskMemory("device", devices, device_bytes)]
    if strategy.kind != "parameter_server":
        return [TaskMemory("process", 1, total)]
    fullest = max(sum_ps_bytes(compute_ps_bytes(strategy, tables, networks)), default=0)
    return [TaskMemory("ps", strategy.ps, fullest), TaskMemory("chief", 1, weights)]


def _count_parts(table: TableSize, devices: int) -> int:
    """Return the number of devices among which a mesh divides the columns of a table, or else its rows."""
    return devices if not table.width % devices or table.rows >= devices else 1


def count_shards(strategy: StrategyConfig, table: str, rows: int, size: int) -> int:
    """Return the number of shards into which TensorFlow's partitioners divide a variable.

    Args:
      strategy: A parameter_server strategy.
      table: Name of the table that contains the variable.
      rows: Number of rows of the variable.
      size: Bytes of its weights.
    """
    partition = strategy.partition(table)
    limit = (partition.shard_over_mb or 0) * (1 << 20)
    if partition.partitioner == "hash":
        count = 1
    elif partition.partitioner == "fixed":
        count = partition.shards or strategy.ps
    elif partition.partitioner == "max_size":
        count = min(MOST_SHARDS, math.ceil(size / limit))
    else:
        count = min(strategy.ps, int(size // limit))
    return max(1, min(count, rows))


def choose_first_ps(table: str, servers: int) -> int:
    """Return the number of the ps that holds the first shard of a table; the next shards are on the next ps in turn.

    It depends on nothing but the name, so that tables of one shard are spread, and the places are known before a run.

    Args:
      table: Name of the table.
      servers: Number of ps.
    """
    return zlib.crc32(table.encode()) % servers


def compute_ps_bytes(
    strategy: StrategyConfig, tables: Sequence[TableSize], networks: int = 1
) -> dict[str, tuple[int, ...]]:
    """Compute where the tables are placed.

    Args:
      strategy: A parameter_server strategy.
      tables: Tables of the model.
      networks: Number of networks that are trained, one per fold, each with tables of the same size.

    Returns:
      Table → its bytes on each ps, with what the optimizer keeps.
    """
    variables: dict[tuple[str, bool], list[TableSize]] = {}
    for table in tables:
        # The ranges of all features are one variable, and their quotients another.
        variables.setdefault((table.table, table.kind.startswith(QUOTIENTS)), []).append(table)
    placed: dict[str, list[int]] = {}
    for (name, _), parts in variables.items():
        rows = sum(part.rows for part in parts) // networks
        row_bytes, copies = 4 * parts[0].width, parts[0].copies
        shards = count_shards(strategy, name, rows, rows * row_bytes)
        sizes = placed.setdefault(name, [0] * strategy.ps)
        for shard in range(shards):
            shard_rows = rows // shards + (shard < rows % shards)
            ps = (choose_first_ps(name, strategy.ps) + shard) % strategy.ps
            sizes[ps] += networks * shard_rows * row_bytes * copies
    return {name: tuple(sizes) for name, sizes in placed.items()}


def sum_ps_bytes(placed: Mapping[str, Sequence[int]]) -> list[int]:
    """Add up the bytes of all tables on each ps."""
    return [sum(sizes) for sizes in zip(*placed.values(), strict=True)]


def find_misfit(training: TrainingConfig, tables: Sequence[TableSize], machine: int) -> str:
    """Return where tables do not fit, with expected and received; empty if they fit, or if it is not known.

    The tasks of a local cluster share this machine. The tasks of `training.where` have the requested `resources`.

    Args:
      training: Strategy and resources.
      tables: Tables of the model.
      machine: Memory of this machine in bytes.
    """
    tasks = [
        task for task in compute_task_memory(training.strategy, tables, training.folds or 1) if task.task != "device"
    ]
    if training.where is not None:
        for task in sorted(tasks, key=lambda task: -task.bytes):
            role = "worker" if task.task == "process" else task.task
            requested = parse_quantity(training.where.task(role).resources.get("memory"))
            if requested is not None and task.bytes > requested:
                return (
                    f"expected at most the {_format_gib(requested)} that training.where requests for each {role}, "
                    f"received {_format_gib(task.bytes)} of tables of ids in each {task.task}"
                )
        return ""
    needed = sum(task.count * task.bytes for task in tasks)
    if needed <= machine:
        return ""
    return (
        f"expected tables of ids that fit the {_format_gib(machine)} of memory of this machine, received "
        f"{_format_gib(needed)} in training: {describe(tasks)}"
    )


def describe(tasks: Sequence[TaskMemory]) -> str:
    """Return the memory of tasks as text, such as `2 ps with 1.0 GiB each, chief with 0.7 GiB`."""
    return ", ".join(
        f"{task.count} {task.task} with {_format_gib(task.bytes)} each"
        if task.count > 1
        else f"{task.task} with {_format_gib(task.bytes)}"
        for task in tasks
    )


def parse_quantity(value: str | int | None) -> int | None:
    """Parse a quantity of Kubernetes, such as 16Gi or 500M; return None if it is missing or has another form."""
    match = _QUANTITY.fullmatch(str(value))
    return int(float(match[1]) * _UNITS[match[2] or ""]) if match else None


def find_tables(plan: TrainingPlan, graph: str | None, most: bool = True) -> list[TableSize]:
    """Return the tables of a training.

    Args:
      plan: Features, model and folds.
      graph: Folder of a transform graph, whose vocabularies provide the sizes; None before Transform has run.
      most: Whether vocabularies that are not in the graph count with their maximum size, or not at all.
    """
    paths = graph_files.paths(graph) if graph else {}

    def entries(feature: Feature) -> int | None:
        return graph_files.entries(paths[feature.vocabulary]) if feature.vocabulary in paths else None

    training, outputs = plan.training, count_outputs(plan, paths)
    return table_sizes(
        plan.model, plan.features.features, entries, most, outputs, training.folds or 1, training.optimizer.copies
    )


def count_outputs(plan: TrainingPlan, paths: Mapping[str, str]) -> int:
    """Return the number of logits of a network; before Transform has counted the classes, 1 for a task with classes.

    Args:
      plan: Task, labels and loss.
      paths: Name → path of the files of a transform graph.
    """
    outputs = len(plan.model.quantiles) if plan.model.loss == "quantile" else 1
    if plan.features.task in ("multiclass", "multilabel") and feature_names.LABEL_CLASSES in paths:
        outputs = graph_files.entries(paths[feature_names.LABEL_CLASSES])
    outputs = plan.features.intervals or outputs
    return outputs * len(plan.features.labels)


def check(plan: TrainingPlan, graph: str) -> None:
    """Check that the tables of a training exist and fit, now that all vocabularies are known.

    Args:
      plan: Plan of the training.
      graph: Folder of the transform graph.

    Raises:
      InputError: If they do not fit, or `strategy.tables` names another table.
    """
    # Without vocabularies, for example after TFX's own Transform, no more is known than before the run.
    tables = find_tables(plan, graph, most=False)
    known = {table.table for table in tables}
    is_known = not any(table.most for table in find_tables(plan, graph))
    if is_known and (unknown := sorted(set(plan.training.strategy.tables) - known)):
        raise InputError(
            f"training.strategy.tables: expected {', '.join(sorted(known)) or 'no table'}, received {unknown[0]}",
            "python runner.py plan prints the tables of the model",
        )
    reason = find_misfit(plan.training, tables, memory()[0])
    if reason:
        largest = max(tables, key=lambda table: table.bytes)
        raise InputError(
            f"training: {reason}; the largest is that of {largest.feature!r}: {largest.rows:,} rows of "
            f"{largest.width} numbers",
            "lower its size or buckets, raise its min_frequency, set its quotient_remainder, or lower model.embedding",
        )


def _format_gib(size: float) -> str:
    return f"{size / _GIB:,.1f} GiB"
