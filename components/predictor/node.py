"""Describes Predictor: its section of the config, and how it is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from components.base.config_section import Problem
from components.base.errors import InputError
from components.base.names import did_you_mean
from components.base.node import OptionalNode, Wiring
from components.ingest.config import DataConfig
from components.predictor.config import PredictConfig
from components.predictor.plan import PredictionPlan


class PredictorNode(OptionalNode):
    """Predictor, which applies the model that the run pushes to the rows of further files."""

    section = "predict"
    component = "components.predictor.component:Predictor"
    section_type = PredictConfig | None
    before_push = False

    def list_code(self, config: Any) -> Sequence[str]:
        """Return the package, and the code that reads a SavedModel."""
        return ("components.predictor", "components.data.saved_model")

    def find_data(self, config: Any) -> DataConfig:
        """Return the rows to predict, which are read as `data` says."""
        data: DataConfig = config.data_of(config.predict.path, config.predict.spans, is_predicted=True)
        return data

    def check_columns(self, config: Any, columns: Sequence[str]) -> Iterator[Problem]:
        """Yield columns that the rows lack: columns that the model reads, and columns to copy to the predictions."""
        read = () if config.features.preprocessing_fn else config.features.columns_read
        for name in read:
            if name not in columns:
                message = f"a feature is made of {name!r}, and the rows have no such column"
                yield Problem(("predict", "path"), message + did_you_mean(name, columns))
        for name in config.predict.columns:
            if name not in columns:
                message = f"expected a column of the rows, received {name!r}"
                yield Problem(("predict", "columns"), message + did_you_mean(name, columns))

    def check_managed(self, config: Any) -> None:
        """Refuse the section, because the files of the node are found by its driver."""
        raise InputError(
            "predict: Vertex AI's pipelines have no driver that would find the files of a node beside ExampleGen",
            "remove the section, and run `runner.py predict` after the pipeline",
        )

    def build(self, wiring: Wiring) -> Any:
        """Build the component, which reads the Pusher's output."""
        config, files = wiring.config, wiring.inputs.files
        plan = PredictionPlan(
            ingest=config.data_of(config.predict.path, is_predicted=True).ingest(files.format),
            columns=config.predict.columns,
            format=config.predict.format,
            code=wiring.inputs.code,
        )
        pushed_model = wiring.nodes["Pusher"].outputs["pushed_model"]
        predictor = self.load_component()(plan, files, config.predict.spans, pushed_model=pushed_model)
        predictor.with_beam_pipeline_args(list(wiring.worker_beam_args))
        return predictor


NODES = (PredictorNode("Predictor", outputs=("predictions",), upstream=("Pusher",)),)
