"""Small pipelines whose nodes only write numbers, so that targets can be tested in seconds; imports TFX.

No `from __future__ import annotations` here: TFX's decorator reads the annotations themselves.
"""

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import apache_beam as beam
from tfx.dsl.compiler.compiler import Compiler
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.experimental.conditionals import conditional
from tfx.dsl.input_resolution.strategies.latest_artifact_strategy import LatestArtifactStrategy
from tfx.orchestration import pipeline
from tfx.types import Channel
from tfx.types.standard_artifacts import Examples, Integer

from components.base.errors import GateError, InputError
from pipeline.core.metadata.connection import to_ir
from pipeline.core.metadata.location import location


@component
def Source(value: Parameter[int], number: OutputArtifact[Integer]):  # noqa: N802
    """Write a number."""
    number.value = value


@component
def Add(a: InputArtifact[Integer], amount: Parameter[int], number: OutputArtifact[Integer]):  # noqa: N802
    """Add a bit to a number."""
    number.value = int(Path(a.uri).read_text()) + amount


@component
def Rows(a: InputArtifact[Integer], examples: OutputArtifact[Examples]):  # noqa: N802
    """Write Examples with the number of their rows as a property, as ExampleGen does."""
    examples.split_names = '["train", "eval"]'
    for key, count in (("rows_read", 12), ("rows_train", 8), ("rows_eval", 4)):
        examples.set_int_custom_property(key, count)


@component
def Actor(a: InputArtifact[Integer], script: Parameter[str], number: OutputArtifact[Integer]):  # noqa: N802
    """Execute the action that a file names; succeed if the file does not exist."""
    # An incomplete output, as a killed node leaves it.
    Path(number.uri).write_text("9")
    if Path(script).exists():
        act(Path(script).read_text().split())
    number.value = int(Path(a.uri).read_text())


def act(words: list[str]) -> None:
    """Fail in one of the ways in that nodes fail; `words` are the action and its argument."""
    action, argument = words[0], words[1] if len(words) > 1 else ""
    if action == "once":
        # The next attempt succeeds.
        Path(argument).unlink()
        act(words[2:])
    elif action == "abort":
        os.abort()
    elif action == "raise":
        raise ValueError("no such luck\nand more of it")
    elif action == "exit":
        sys.exit(3)
    elif action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "input":
        _fail_inside_beam()
    elif action == "gate":
        raise GateError("too many gaps", "fill them", ["a", "b"])
    elif action == "talk":
        sys.stdout.write("out\n")
        warnings.warn("careful", UserWarning, stacklevel=1)
        os.write(2, b"native\n")
        for _ in range(64):
            os.write(1, b"x" * 65535 + b"\n")
    elif action == "burn":
        burner = "while sum(__import__('os').times()[:2]) < 1: bytearray(1)\n"
        hog = f"block = bytearray(200 << 20)\n{burner}"
        subprocess.run([sys.executable, "-c", hog], check=True)
    elif action == "fill":
        with Path(argument).open("wb") as file:
            while True:
                file.write(b"x" * (1 << 20))
    elif action == "daemon":
        # A process in a new session whose parent has ended: it cannot be found by its group or its parent.
        subprocess.Popen([sys.executable, "-c", _DAEMON, argument]).wait()
    elif action == "meet":
        # Opening blocks until the other side of the pipe is opened, reading until it is closed again.
        Path(argument).read_text()
    elif action in ("wait", "refuse"):
        if action == "refuse":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # A child process that only this process can stop.
        below = subprocess.Popen(["sleep", "1000"])
        # Opening blocks until the test reads, so the test knows that the node runs, and its process IDs.
        Path(argument).write_text(f"{os.getpid()} {below.pid}")
        signal.pause()


_DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(1000)
"""


def _fail_inside_beam() -> None:
    def refuse(_element: int) -> None:
        raise InputError("trips.csv, row 7: expected 18 fields, received 17", "fix the row", ["3 more"])

    with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(["--direct_running_mode=in_memory"])) as p:
        _ = p | beam.Create([1]) | beam.Map(refuse)


def compile_toy(folder: Path, shape: str, value: int = 1, store: str = "") -> bytes:
    """Return a toy pipeline, compiled.

    Args:
      folder: Folder of the store, the artifacts and the scripts.
      shape: `chain` (Source, Add, Actor, Rows), `fan` (Source, then eight Add), `pair` (Source, then two Actors side
        by side), `condition` (a node that only runs for a large number), `resolver` (reads an earlier run's number).
      value: First number; an unused number is not in the cache.
      store: a database's URL, instead of the file in the folder.
    """
    database = location(store) if store else folder / "metadata.db"
    source = Source(value=value)
    toy = pipeline.Pipeline(
        pipeline_name="toy",
        pipeline_root=str(folder / "artifacts"),
        components=[source, *_SHAPES[shape](folder, source.outputs["number"])],
        enable_cache=True,
        metadata_connection_config=to_ir(database),
    )
    return bytes(Compiler().compile(toy).SerializeToString())


def _chain(folder: Path, number: Any) -> list[Any]:
    add = Add(a=number, amount=1)
    actor = Actor(a=add.outputs["number"], script=str(folder / "Actor.script"))
    return [add, actor, Rows(a=actor.outputs["number"])]


def _fan(_folder: Path, number: Any) -> list[Any]:
    return [Add(a=number, amount=amount).with_id(f"Add{amount}") for amount in range(8)]


def _pair(folder: Path, number: Any) -> list[Any]:
    return [Actor(a=number, script=str(folder / f"{name}.script")).with_id(name) for name in ("Left", "Right")]


def _condition(_folder: Path, number: Any) -> list[Any]:
    with conditional.Cond(number.future().value > 100):
        return [Add(a=number, amount=1)]


def _resolver(_folder: Path, _number: Any) -> list[Any]:
    anything = Channel(type=Integer, producer_component_id="Source")
    latest = Resolver(strategy_class=LatestArtifactStrategy, number=anything).with_id("Latest")
    return [latest, Add(a=latest.outputs["number"], amount=1)]


_SHAPES = {"chain": _chain, "fan": _fan, "pair": _pair, "condition": _condition, "resolver": _resolver}
