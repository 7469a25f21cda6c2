"""Descriptors of nodes: name, inputs and outputs, and the presentation of the result.

The folder of a node describes its nodes in `node.py`. The config, the run records, the terminal and the report iterate
over these descriptors, so that they do not have to import a node by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from components.base.config_section import Problem
from components.base.registry import import_object

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ResultTable:
    """A table for the terminal and the report.

    Attributes:
      caption: What the rows are.
      header: Names of the columns. The first column contains the names of the rows, the last column `pass` or `fail`.
      rows: The rows, as lists of cells.
      legend: How the figures were measured.
      notes: Sentences to show below the table, or alone if the table is empty.
    """

    caption: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    legend: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Node:
    """A node of the pipeline.

    Attributes:
      name: Unique in the pipeline, such as `Trainer`.
      outputs: Keys of the output artifacts. The first artifact contains the result.
      upstream: Names of the nodes that it depends on, as far as the pipeline has them.
      only_looks_up: Whether it only looks up an artifact of an earlier run, which does not have to exist.
    """

    name: str
    outputs: tuple[str, ...]
    upstream: tuple[str, ...] = ()
    only_looks_up: bool = False


class NodeWithResult(Node, Generic[ResultT]):
    """A node that records a result for the summary of a run.

    Attributes:
      result_file: Path of the result in the folder of the first output; "" if the output is a file.
    """

    result_file = ""

    def parse_result(self, text: str) -> ResultT:
        """Parse the content of the result's file."""
        raise NotImplementedError

    def to_json(self, result: ResultT) -> Mapping[str, Any]:
        """Return what `--json` prints of a result, as plain JSON values."""
        raise NotImplementedError

    def tabulate(self, result: ResultT) -> ResultTable | None:
        """Return the table of a result; None if it is not shown as a table."""

    def list_findings(self, result: ResultT) -> Sequence[str]:
        """Return what a reader of the last lines of a run has to know."""
        return ()


@dataclass(frozen=True)
class ModelPlans:
    """What optional nodes need to know about the model; pipeline/authoring/plans.py derives it from the config.

    Attributes:
      training: What the Trainer depends on, a components.trainer.plan.TrainingPlan.
      evaluation: What the verdict depends on, a components.evaluator.plan.EvaluationPlan.
      label_key: Name of the label, or of the first label, in the outputs of `preprocessing` or among the columns.
      preprocessing: Signatures of the model that compute the label.
      prediction_key: Name of the model's output that is the prediction. None if the model has a single output.
    """

    training: Any
    evaluation: Any
    label_key: str
    preprocessing: tuple[str, ...]
    prediction_key: str | None


@dataclass(frozen=True)
class NodeInputs:
    """What an optional node depends on besides the config.

    Attributes:
      code: Digest of the code that the node runs.
      files: Input files of `OptionalNode.find_data`, a components.ingest.input_files.FilePatterns. None without them.
    """

    code: str
    files: Any = None


@dataclass(frozen=True)
class Wiring:
    """What an optional node is built from.

    Attributes:
      config: The whole config, a pipeline.authoring.config.Config.
      plans: What is known about the model.
      inputs: What the node depends on besides the config.
      nodes: Name → TFX node, for the nodes that are built before this one.
      worker_beam_args: Beam's further options for columnar nodes.
      managed: Whether a service runs the pipeline that keeps the metadata itself and does not run drivers.
    """

    config: Any
    plans: ModelPlans
    inputs: NodeInputs
    nodes: Mapping[str, Any] = field(default_factory=dict)
    worker_beam_args: Sequence[str] = ()
    managed: bool = False


class OptionalNode(Node):
    """A node that a section of the config adds to the pipeline.

    An installed package adds a node with an instance of a subclass, and an entry point of the group
    `tfx_pipeline.nodes` whose name is the name of the node. Methods with a config get the whole config, a
    pipeline.authoring.config.Config, which has the section as an attribute.

    Attributes:
      section: Key of the section. The node is part of a pipeline whose config has it.
      component: Import path of the TFX component, as `module:class`. Its module is imported only to build the pipeline,
        so that the config can be checked quickly.
      section_type: Type of the section, usually a subclass of Section. Without the section, its value is `default`.
      default: Value of the section in a config without it.
      before_push: Whether the Pusher waits for the node and pushes nothing if the node fails. Otherwise the node is
        built after the Pusher, and can read its output.
      pushes: Key of the output whose files are pushed with the model; "" if there is none.
    """

    section: ClassVar[str]
    component: ClassVar[str]
    section_type: ClassVar[Any]
    default: ClassVar[Any] = None
    before_push: ClassVar[bool] = True
    pushes: ClassVar[str] = ""

    def is_part(self, config: Any) -> bool:
        """Return whether a pipeline has the node."""
        return bool(getattr(config, self.section, self.default) != self.default)

    def check_against(self, config: Any) -> Iterable[Problem]:
        """Return the mistakes in a section that is a list; `Section.check_against` returns the mistakes in others."""
        return ()

    def list_thresholds(self, config: Any) -> Iterable[tuple[tuple[str | int, ...], Any]]:
        """Return the key and the bound, a Threshold, of each metric in the section; the key ends with the metric."""
        return ()

    def list_code(self, config: Any) -> Sequence[str]:
        """Return the modules and packages whose code the node runs, for its cache key; by default its own package."""
        return (type(self).__module__.rpartition(".")[0] or type(self).__module__,)

    def find_data(self, config: Any) -> Any:
        """Return the rows that the node reads besides `data`, as a DataConfig; None if it does not read any."""

    def check_columns(self, config: Any, columns: Sequence[str]) -> Iterable[Problem]:
        """Return the mistakes in the section that the columns of the rows of `find_data` reveal."""
        return ()

    def check_managed(self, config: Any) -> None:
        """Check that the node can run where a service keeps the metadata and does not run drivers, as on Vertex AI.

        Raises:
          InputError: It cannot.
        """

    def load_component(self) -> Any:
        """Import the class of the TFX component."""
        return import_object(self.component)

    def build(self, wiring: Wiring) -> Any:
        """Build the TFX component, whose class `load_component` returns.

        Returns:
          The component. None if the pipeline does without the node.
        """
        raise NotImplementedError
