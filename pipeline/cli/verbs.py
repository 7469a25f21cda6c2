"""The table of verbs: dispatch, help, suggestions and the page docs/reference/commands.md are derived from it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from components.base.errors import InputError
from components.compat.pydantic import without_plugins
from pipeline.core import addons


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
      module: Module that implements the verb; `main` describes what it defines. Only the verb in use is imported.
      text: One line for the overview: what the verb does.
      group: Heading of the verb in the overview. For a verb of two words, the first word.
    """

    module: str
    text: str
    group: str


class Group(NamedTuple):
    """A first word that several verbs share.

    Attributes:
      text: One line for the overview: what the verbs of the group work on.
      default: The verb that runs if the user types the first word alone; None if a second word is required.
    """

    text: str
    default: str | None = None


_TEXTS = {
    "pipeline": {
        "start": "from a table and a label to a pushed model and its report",
        "run": "run the pipeline; `--local` alone means `run --local`",
        "init": "write a first config and a schema from the data",
        "validate": "check a config, and its columns against the data",
        "plan": "show the nodes of a run, their inputs, the engine, and what is cached",
        "due": "print whether a scheduled run is due",
    },
    "model": {
        "serve": "serve the pushed model on this machine",
        "predict": "predict the rows of files with a pushed version, or with any SavedModel",
        "explain": "print what a model's predictions depend on, in all rows or in a single one",
        "monitor": "compare served requests with the rows that the version was trained on",
    },
    "machine": {
        "doctor": "check this machine: what is wrong, and how to fix it",
        "schema": "write the JSON Schema of the config, for editors",
    },
    "scaffold": {
        "scaffold project": "write a repository for a pipeline: config, own code, tests, image, Makefile, CI",
    },
    "runs": {
        "runs list": "list the runs: state, duration, span, verdict, metrics, pushed version",
        "runs show": "show a run, node by node",
        "runs compare": "compare two runs: config, schema, data, metrics, model",
        "runs diff-data": "compare the data of two runs, column by column",
        "runs report": "write a page on a run, and a model card",
        "runs site": "write a page on all runs, with links to their reports",
        "runs serve": "serve the same pages on this machine, also for unfinished runs",
        "runs profile": "profile the next steps of a running training for TensorBoard",
        "runs why-not-cached": "explain why a node ran instead of reusing cached outputs",
    },
    "models": {
        "models list": "list the pushed versions and their stages",
        "models approve": "publish a blessed model that waits for an approval, and record who approved it",
        "models promote": "make a version the stable one",
        "models canary": "give a version a share of the traffic",
        "models rollout": "give a version growing shares of the traffic while it is no worse than the stable one",
        "models rollback": "return to the version that was stable before",
        "models verify": "verify pushed versions against their manifests",
        "models mirror": "copy the versions that serve from a bucket to this machine, for model servers",
    },
    "store": {
        "store artifacts": "list the artifacts of the runs",
        "store lineage": "show what an artifact was made from, and what was made from it",
        "store export": "write the whole metadata store as JSON Lines or OpenLineage events, or runs to MLflow",
        "store export-examples": "write examples as TFRecords, for stock TFX",
        "store gc": "list artifacts that no kept run and no pushed version needs, and remove them",
        "store migrate": "migrate a metadata store to the schema of this release",
    },
    "node": {
        "node compile": "write the compiled pipeline, for `node run`",
        "node run": "run one node of a compiled pipeline, as orchestrators do",
        "node worker-pool": "run Beam's Python workers for Flink, Spark or another engine on this machine",
    },
}
"""Group → the words of a verb → one line for the overview."""

VERBS = {
    name: Verb(f"pipeline.cli.{name.replace(' ', '.').replace('-', '_')}", text, group)
    for group, verbs in _TEXTS.items()
    for name, text in verbs.items()
}
"""The words of a verb → its module, description and group."""

GROUPS = {
    "scaffold": Group("write files to start from"),
    "runs": Group("look at runs", "list"),
    "models": Group("look at pushed versions, and direct traffic to them", "list"),
    "store": Group("look at the metadata store and the artifacts in it, and clean up"),
    "node": Group("run single nodes, for orchestrators and Beam engines"),
}
"""First word of verbs of two words → the group."""

ALIASES = {"train": "run", "fit": "run", "check": "validate"}
"""Words of other tools → the verb that does the same here."""

_SUGGESTIONS = {"serve-ui": "runs serve", "run-node": "node run", "metadata": "store migrate", "ui": "runs serve"}
"""Words that are not the last word of a verb → the verb to suggest. A second word alone suggests its verb anyway."""


def find_verb(words: Sequence[str]) -> tuple[str, list[str]]:
    """Find the verb that a command line begins with.

    Args:
      words: The command line, not empty. If it begins with an option, the verb is `run`.

    Returns:
      A key of VERBS or of `addons.VERBS`, or of GROUPS if the user typed only the first word of a group without a
      default; and the remaining words.

    Raises:
      InputError: The verb is unknown, or two installed packages add the same verb.
    """
    first, *arguments = words
    if first.startswith("-"):
        return "run", list(words)
    first = ALIASES.get(first, first)
    if first in VERBS:
        return first, arguments
    if first not in GROUPS and first in addons.VERBS:
        return first, arguments
    if first in GROUPS:
        if arguments and not arguments[0].startswith("-"):
            first = f"{first} {arguments[0]}"
            arguments = arguments[1:]
        elif default := GROUPS[first].default:
            first = f"{first} {default}"
        if first in VERBS or first in GROUPS:
            return first, arguments
    raise InputError(f"unknown verb {first!r}{_suggest(first, arguments)}", "see python runner.py help")


def load_verb(name: str) -> ModuleType:
    """Import the module of a verb.

    Args:
      name: A key of VERBS or of `addons.VERBS`.

    Raises:
      InputError: The package that adds the verb cannot be loaded.
    """
    if name not in VERBS:
        return addons.VERBS[name]
    with without_plugins():
        return importlib.import_module(VERBS[name].module)


def _suggest(typed: str, rest: Sequence[str]) -> str:
    """Return the end of the message on an unknown verb: the most similar verb, or the verbs of its group, or ""."""
    # Later entries replace earlier ones: `run` is the verb of one word, and not `node run`.
    verbs = {verb.split()[-1]: verb for verb in reversed(VERBS)} | _SUGGESTIONS | ALIASES
    verbs |= {verb: verb for verb in (*VERBS, *GROUPS, *addons.VERBS)}
    typed = typed.lower()
    two_words = " ".join([typed, *rest[:1]])
    for text, cutoff in ((typed, 1), (two_words, 0.75), (typed, 0.65), (typed.split()[-1], 0.65)):
        if near := difflib.get_close_matches(text, verbs, n=1, cutoff=cutoff):
            return f"; did you mean {verbs[near[0]]!r}?"
    group = typed.split()[0]
    if group not in GROUPS:
        return ""
    return f"; expected {group} and one of {', '.join(list_second_words(group))}"


def list_second_words(group: str) -> list[str]:
    """Return the second words of the verbs of a group, in the order of VERBS."""
    return [name.split()[1] for name, verb in VERBS.items() if verb.group == group]
