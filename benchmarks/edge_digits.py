"""Measure variants for small devices of a network that reads digits: accuracy, size and speed over several seeds.

python -m benchmarks.edge_digits [--seeds 3]

Each seed is a run of `configs/digits.yaml` with `network` as model. `network` does not use normalization, because the
group normalization of `cnn` consists of many small operations, which int8 hardly accelerates.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks import measure
from components.edge.verdict import EdgeVerdict, VariantResult

if TYPE_CHECKING:
    import tf_keras

    from components.models.inputs import Inputs

_VARIANTS: list[dict[str, Any]] = [
    {"quantize": "none"},
    {"quantize": "int8"},
    *({"kind": "pruned", "channels": 0.5, "quantize": quantize} for quantize in ("none", "int8")),
    {"kind": "qat"},
    *({"kind": "pruned", "sparsity": sparsity, "quantize": "int8"} for sparsity in (0.8, "2:4")),
    {"kind": "clustered", "clusters": 16, "quantize": "int8"},
    {"kind": "pruned", "sparsity": 0.8, "clusters": 16, "qat": True},
    {"kind": "distilled", "student": {"build": f"{__file__}:student"}, "quantize": "int8"},
]
_STEPS = 1500
_FIGURES = {
    "kB": lambda result: result.bytes / 1000,
    "gzip kB": lambda result: result.gzip_bytes / 1000,
    "accuracy": lambda result: result.metric,
    "mean |Δp|": lambda result: result.mean_difference,
    "zeros": lambda result: result.sparsity,
    "distinct": lambda result: result.distinct,
    "p50 ms": lambda result: result.latencies[0].p50_ms,
    "speed": lambda result: result.latencies[0].speedup,
}


def network(inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network with three convolutions of 32, 64 and 128 filters, for the config's `model.build`."""
    return _convolutions(inputs, outputs, (32, 64, 128))


def student(inputs: Inputs, outputs: int) -> tf_keras.Model:
    """Build a network with three convolutions of 8, 8 and 16 filters."""
    return _convolutions(inputs, outputs, (8, 8, 16))


def _convolutions(inputs: Inputs, outputs: int, filters: tuple[int, ...]) -> tf_keras.Model:
    import tf_keras

    layers = tf_keras.layers
    ((name, image),) = inputs.dense.items()
    pixels = layers.Input((image.width,), name=name)
    below = layers.Reshape(image.image, name="pixels")(pixels)
    for number, count in enumerate(filters):
        strides = 2 if number == len(filters) - 1 else 1
        below = layers.Conv2D(count, 3, strides, "same", activation="relu", name=f"conv_{number}")(below)
    pooled = layers.GlobalAveragePooling2D(name="pooled")(below)
    return tf_keras.Model(pixels, layers.Dense(outputs, name="logits")(layers.Dropout(0.2, name="dropout")(pooled)))


def main() -> None:
    """Run, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    runs = [_run(seed) for seed in range(1, options.seeds + 1)]
    verdicts = [verdict for verdict, _ in runs]
    facts: measure.Facts = {}
    for variant in verdicts[0].variants:
        results = [
            next(candidate for candidate in verdict.variants if candidate.name == variant.name) for verdict in verdicts
        ]
        figures = "; ".join(f"{name} {_spread(results, figure)}" for name, figure in _FIGURES.items())
        facts[variant.name] = f"{figures}; passes {sum(result.passed for result in results)} of {len(results)}"
        if variant.student:
            students = [result.student for result in results if result.student]
            for name in ("taught", "alone"):
                values = [value for student_result in students for value in getattr(student_result, name)]
                facts[f"{variant.name}: {name}, in float32"] = f"accuracy {measure.Spread.of(values)}"
    facts["accuracy of the full models"] = str(measure.Spread.of(verdict.full or 0 for verdict in verdicts))
    command = f"python -m benchmarks.edge_digits --seeds {options.seeds}"
    print(
        measure.record(
            "edge_digits", command, {"a run, with all variants": [measurement for _, measurement in runs]}, facts
        )
    )


def _run(seed: int) -> tuple[EdgeVerdict, measure.Measurement]:
    config = yaml.safe_load(Path("configs/digits.yaml").read_text())
    config |= {"model": {"build": f"{__file__}:network"}, "edge": _VARIANTS}
    config["training"] |= {"seed": seed, "steps": _STEPS}
    config["evaluation"]["thresholds"] = {"accuracy": {"min": 0.95}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "digits.yaml")
        path.write_text(yaml.safe_dump(config))
        command = [sys.executable, "runner.py", "--local", "--config", str(path), "--output", f"{folder}/out"]
        measured = measure.run(command, Path(folder, "run.log"))
        (verdict,) = Path(folder, "out/digits/artifacts/EdgeExporter/variants").glob("*/verdict.json")
        return EdgeVerdict.from_json(verdict.read_text()), measured


def _spread(results: list[VariantResult], figure: Any) -> str:
    return str(measure.Spread.of(figure(result) for result in results))


if __name__ == "__main__":
    main()
