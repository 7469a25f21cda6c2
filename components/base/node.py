"""Descriptors of nodes, with their names, inputs, outputs, and the presentation of their results.

The folder of a component describes its nodes in `node.py`. The config, the run records, the terminal and the report
iterate over these descriptors, so that they do not have to import a node by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from components.base.config_section import Problem
from components.base.registry import import_object

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ResultTable:
    """A table for the terminal and the report.

    Attributes:
      caption: Description of the rows.
      header: Names of the columns. The first column contains the names of the rows, the last column `pass` or `fail`.
      rows: The rows, as lists of cells.
      legend: Explanation of how the figures were measured.
      notes: Sentences to show below the table, or alone if the table is empty.
    """

    caption: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    legend: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ReportSection:
    """A section of the report, which shows the result of a node with a template of the node.

    Attributes:
      id: ID of the HTML element.
      title: Title in the list of sections.
      template: Path of the Jinja template, which can use the macros and filters of pipeline/inspection/report.
      values: Variables of the template.
    """

    id: str
    title: str
    template: Path
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Node:
    """A node of the pipeline.

    Attributes:
      name: Name that is unique in the pipeline, such as `Trainer`.
      outputs: Keys of the output artifacts. The first artifact contains the result, if the node does not name another.
      upstream: Names of the nodes that the node depends on. Nodes that the pipeline does not contain are ignored.
      only_looks_up: Whether the node only looks up an artifact of an earlier run, which does not have to exist.
    """

    name: str
    outputs: tuple[str, ...]
    upstream: tuple[str, ...] = ()
    only_looks_up: bool = False


class NodeWithResult(Node, Generic[ResultT]):
    """A node that records a result for the summary of a run.

    Attributes:
      result_output: Key of the output that contains the result; "" for the first output.
      result_file: Path of the result in the folder of the first output; "" if the output is a file.
    """

    result_output = ""
    result_file = ""

    def parse_result(self, text: str) -> ResultT:
        """Parse the content of the result's file."""
        raise NotImplementedError

    def to_json(self, result: ResultT) -> Mapping[str, Any]:
        """Convert a result to the JSON values that `--json` prints."""
        raise NotImplementedError

    def tabulate(self, result: ResultT) -> ResultTable | None:
        """Return the table of a result. None if it is not shown as a table."""

    def make_section(self, result: ResultT) -> ReportSection | None:
        """Return the section of the report on a result. None if the report does not have such a section."""

    def list_findings(self, result: ResultT) -> Sequence[str]:
        """Return the findings that a run prints in its last lines, so that users notice them."""
        return ()


@dataclass(frozen=True)
class ModelPlans:
    """Information about the model for optional nodes. pipeline/authoring/plans.py derives it from the config.

    Attributes:
      training: Settings of the Trainer, a components.trainer.plan.TrainingPlan.
      evaluation: Settings of the evaluation and the verdict, a components.evaluator.plan.EvaluationPlan.
    """

    training: Any
    evaluation: Any


@dataclass(frozen=True)
class NodeInputs:
    """The dependencies of an optional node in addition to the config.

    Attributes:
      code: Digest of the code that the node runs.
      files: Input files of `OptionalNode.find_data`, a components.ingest.input_files.FilePatterns. None if the node
        does not read any.
    """

    code: str
    files: Any = None


@dataclass(frozen=True)
class Wiring:
    """The arguments for building an optional node.

    Attributes:
      config: The whole config, a pipeline.authoring.config.Config.
      plans: Information about the model.
      inputs: The dependencies of the node in addition to the config.
      nodes: TFX nodes that were already built, by name.
      worker_beam_args: Additional Beam options for columnar nodes.
      managed: Whether the pipeline runs on a service, such as Vertex AI, that stores the metadata itself and does not
        run drivers.
    """

    config: Any
    plans: ModelPlans
    inputs: NodeInputs
    nodes: Mapping[str, Any] = field(default_factory=dict)
    worker_beam_args: Sequence[str] = ()
    managed: bool = False


class OptionalNode(Node):
    """A node that a section of the config adds to the pipeline.

    An installed package adds a node by an instance of a subclass and an entry point in the group `tfx_pipeline.nodes`.
    The name of the entry point is the name of the node. The argument `config` of the methods is the whole config, a
    pipeline.authoring.config.Config, with the section as an attribute.

    Attributes:
      section: Key of the section. A pipeline contains the node if its config has this section.
      component: Import path of the TFX component, as `module:class`. The module is imported only to build the pipeline,
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
        """Return whether the pipeline of a config contains the node."""
        return bool(getattr(config, self.section, self.default) != self.default)

    def check_against(self, config: Any) -> Iterable[Problem]:
        """Return the mistakes in a section that is a list. For other sections, override `Section.check_against`."""
        return ()

    def list_thresholds(self, config: Any) -> Iterable[tuple[tuple[str | int, ...], Any]]:
        """Return the bounds of metrics in the section as pairs (key, Threshold). A key ends with the metric's name."""
        return ()

    def list_code(self, config: Any) -> Sequence[str]:
        """Return the modules and packages whose code the node runs, for its cache key. By default, its package."""
        return (type(self).__module__.rpartition(".")[0] or type(self).__module__,)

    def find_data(self, config: Any) -> Any:
        """Return the DataConfig of rows that the node reads in addition to `data`. None if it does not read any."""

    def check_columns(self, config: Any, columns: Sequence[str]) -> Iterable[Problem]:
        """Check the section against the columns of the rows that `find_data` describes.

        Args:
          config: The whole config.
          columns: Names of the columns.

        Returns:
          The mistakes in the section.
        """
        return ()

    def check_managed(self, config: Any) -> None:
        """Check that the node can run on a service that stores the metadata and does not run drivers, as Vertex AI.

        Raises:
          InputError: The node cannot run on such a service.
        """

    def load_component(self) -> Any:
        """Import the class of the TFX component."""
        return import_object(self.component)

    def build(self, wiring: Wiring) -> Any:
        """Build the TFX component, whose class `load_component` returns.

        Args:
          wiring: The arguments for building the component.

        Returns:
          The component. None if the pipeline does not need the node.
        """
        raise NotImplementedError
