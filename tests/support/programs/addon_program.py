"""Uses the example add-on where it is installed, and prints as JSON what came of it."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from typing import Any

from pipeline.authoring.config import Config, load


def _describe_config(config: Config) -> dict[str, Any]:
    return {
        "operations": [feature.op.op for feature in config.features.declared],
        "size": config.section("size").max_mb,
        "recorded": config.model_dump_json(by_alias=True, exclude_unset=True),
        "is_pickled": pickle.loads(pickle.dumps(config)) == config,  # noqa: S301 - written here
        "heavy": [name for name in ("tensorflow", "tfx", "apache_beam") if name in sys.modules],
    }


def _describe_pipeline(config: Config) -> dict[str, Any]:
    from pipeline.authoring.build import build
    from pipeline.orchestration.compiler import resolve_inputs

    pipeline = build(config, resolve_inputs(config))
    gate = next(node for node in pipeline.components if node.id == "SizeGate")
    return {
        "upstream": {node.id: sorted(each.id for each in node.upstream_nodes) for node in pipeline.components},
        "parameters": dict(gate.exec_properties),
        "beam_args": list(pipeline.beam_pipeline_args),
    }


def _compute_feature(config: Config) -> list[float]:
    import tensorflow as tf

    from components.features import ops
    from components.features.column_group import Columns

    (feature,) = (feature for feature in config.features.declared if feature.op.op == "sqrt")
    values = tf.sparse.from_dense(tf.constant([[0.25], [4.0], [-9.0], [0.0]]))
    [group] = ops.group([feature], Columns({feature.columns[0]: values}))
    computed: list[float] = ops.apply(group, None)[feature.name].numpy().tolist()
    return computed


def _build_model(config: Config) -> list[int | None]:
    from components.features.feature_spec import Dense
    from components.models.build import build
    from components.models.inputs import Inputs

    return list(build(config.model, Inputs({"minutes_sqrt": Dense(), "age_z_score": Dense()}), 1).output_shape)


def _compute_metric() -> float:
    import numpy as np

    from components.evaluator.config import metric

    bias = metric("bias", "binary")
    made = getattr(importlib.import_module(bias.module), bias.tfma_class)("bias")
    combiner = made.computations()[0].combiner
    _, summands = combiner.bins(np.array([0.0, 1.0, 1.0]), np.array([0.5, 0.75, 0.0]))
    return float(summands[:, 0].mean())


if __name__ == "__main__":
    loaded = load(sys.argv[1]).config
    described = _describe_config(loaded)
    json.dump(
        {
            **described,
            **_describe_pipeline(loaded),
            "feature": _compute_feature(loaded),
            "output_shape": _build_model(loaded),
            "bias": _compute_metric(),
        },
        sys.stdout,
    )
