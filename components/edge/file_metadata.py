"""Add TensorFlow Lite's metadata to a file, so that an app finds out what its inputs and its prediction mean.

Android's Task Library, Android Studio and the Python package `tflite_support` read it. It is a FlatBuffer in the buffer
TFLITE_METADATA of the file, and a ZIP archive behind the model with the names of the classes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np

from components.edge import metadata_schema
from components.edge.metadata_schema import Byte, Table, table
from components.features.plan import FeaturePlan

BUFFER, LABELS = "TFLITE_METADATA", "labels.txt"
_LIMITS = {
    **dict.fromkeys(("image", "min_max", "missing", "piecewise_linear"), (0.0, 1.0)),
    "cyclical": (-1.0, 1.0),
}
"""Operation → least and greatest number of its feature; other operations are not limited."""
_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True)
class TensorDescription:
    """The meaning of an input or of the prediction of a file.

    Attributes:
      text: What the numbers are.
      limits: Least and greatest number. None if they are not limited.
      normalization: Mean and standard deviation, if the numbers are (raw value - mean) / deviation.
      image: Height, width and channels, if the numbers are pixels.
      threshold: Smallest probability of the model's decision 1. None if the model returns probabilities only.
    """

    text: str
    limits: tuple[float, float] | None = None
    normalization: tuple[float, float] | None = None
    image: tuple[int, int, int] | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class ModelDescription:
    """The meaning of a model after its transform.

    Attributes:
      name: Name of the pipeline.
      version: ID of the run.
      inputs: Name → meaning of an input.
      output: Meaning of the prediction.
      labels: Names of the classes in the order of the prediction; empty for a regression.
    """

    name: str
    version: str
    inputs: Mapping[str, TensorDescription]
    output: TensorDescription
    labels: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ModelDescription:
        """Create a description from the return value of `dataclasses.asdict`."""
        inputs = {name: TensorDescription(**tensor) for name, tensor in fields["inputs"].items()}
        return cls(**{**fields, "inputs": inputs, "output": TensorDescription(**fields["output"])})


def describe(
    name: str, version: str, plan: FeaturePlan, preprocessing: Mapping[str, Any], threshold: float | None = None
) -> ModelDescription:
    """Describe a model.

    Args:
      name: Name of the pipeline.
      version: ID of the run.
      plan: Plan with the label and the task.
      preprocessing: Content of preprocessing.json.
      threshold: Smallest probability of the model's decision 1. None if it returns probabilities only.
    """
    label, limits = plan.labels[0].text, (0.0, 1.0)
    decision = "" if threshold is None else f"; the class is 1 from {threshold:.9g}"
    outputs = {
        "binary": TensorDescription(f"probability of the label {label}{decision}", limits, threshold=threshold),
        "multiclass": TensorDescription(f"probabilities of the classes of {label}, in the order of {LABELS}", limits),
        "regression": TensorDescription(f"prediction of the label {label}"),
    }
    labels = {"binary": (label,), "multiclass": tuple(preprocessing.get("classes", ()))}
    return ModelDescription(
        name,
        version,
        {feature["name"]: _describe_feature(feature) for feature in preprocessing["features"]},
        outputs[plan.task],
        labels.get(plan.task, ()),
    )


def _describe_feature(feature: Mapping[str, Any]) -> TensorDescription:
    operation, options, columns = feature["op"], feature["options"], ", ".join(feature["columns"])
    text = f"operation {operation} of {columns}; preprocessing.json has its constants"
    limits = _LIMITS.get(operation)
    if operation == "image":
        height, width, channels = (options[name] for name in ("height", "width", "channels"))
        text = f"pixels of {columns}, from 0 to 1: height {height}, width {width}, channels {channels}, flattened"
        return TensorDescription(text, limits, (0.0, 255.0), (height, width, channels))
    if operation == "z_score":
        mean, deviation = feature["analysis"][:2]
        return TensorDescription(text, limits, (mean, deviation))
    return TensorDescription(text, limits)


def add(content: bytes, description: ModelDescription, variant: str) -> bytes:
    """Add metadata to a file; its graph and its weights do not change.

    Args:
      content: Content of a file with one signature.
      description: Meaning of the model.
      variant: Name of the variant.
    """
    # Imported here because every process that compiles a pipeline imports this module.
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content)
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    names = {tensor.tensorIndex: tensor.name.decode() for tensor in (*signature.inputs, *signature.outputs)}
    types = {code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")}

    def describe_tensor(index: int, meaning: TensorDescription, labels: tuple[str, ...] = ()) -> Table:
        tensor = graph.tensors[index]
        return _create_tensor(names[index], types[tensor.type], tensor.quantization, meaning, labels)

    root = table(
        "ModelMetadata",
        name=f"{description.name} {variant}".strip(),
        description="The model after its transform: preprocessing.json computes its inputs from raw columns.",
        version=description.version,
        subgraphs=[
            table(
                "SubGraphMetadata",
                # The order is the order of the graph, which differs from the order of the signature.
                inputs=[describe_tensor(index, description.inputs[names[index]]) for index in graph.inputs],
                outputs=[describe_tensor(graph.outputs[0], description.output, description.labels)],
            )
        ],
        min_parser_version=metadata_schema.PARSER_VERSION,
    )
    model.buffers.append(schema.BufferT(data=np.frombuffer(metadata_schema.serialize(root), np.uint8)))
    model.metadata = [*(model.metadata or ()), schema.MetadataT(BUFFER, len(model.buffers) - 1)]
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    file = io.BytesIO(builder.Output())
    if description.labels:
        # The archive is not compressed, because Android reads it from the mapped file. Bytes that are not UTF-8 are
        # surrogates; see preprocessing.json.
        lines = "".join(f"{label.translate(_LINE_ENDS)}\n" for label in description.labels)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(zipfile.ZipInfo(LABELS), lines.encode(errors="surrogateescape"))
    return file.getvalue()


def _create_tensor(
    name: str, dtype: str, quantization: Any, meaning: TensorDescription, labels: tuple[str, ...]
) -> Table:
    text, limits = meaning.text, meaning.limits
    if dtype in ("int8", "uint8"):
        scale, zero_point = float(quantization.scale[0]), int(quantization.zeroPoint[0])
        text += f"; {dtype}: number = {scale:.9g} * (stored - {zero_point})"
        least, greatest = (-128, 127) if dtype == "int8" else (0, 255)
        limits = (scale * (least - zero_point), scale * (greatest - zero_point))
    properties_type, properties = metadata_schema.FEATURE, table("FeatureProperties")
    if meaning.image:
        height, width, channels = meaning.image
        color_space = metadata_schema.RGB if channels == 3 else metadata_schema.GRAYSCALE
        size = table("ImageSize", width=width, height=height)
        properties_type = metadata_schema.IMAGE
        properties = table("ImageProperties", color_space=Byte(color_space), default_size=size)
    process_units = []
    if meaning.normalization:
        mean, deviation = meaning.normalization
        options = table("NormalizationOptions", mean=[mean], std=[deviation])
        process_units = [table("ProcessUnit", options_type=Byte(metadata_schema.NORMALIZATION), options=options)]
    if meaning.threshold is not None:
        options = table("ScoreThresholdingOptions", global_score_threshold=meaning.threshold)
        process_units.append(
            table("ProcessUnit", options_type=Byte(metadata_schema.SCORE_THRESHOLDING), options=options)
        )
    file = table("AssociatedFile", name=LABELS, description="a class per line", type=Byte(metadata_schema.AXIS_LABELS))
    return table(
        "TensorMetadata",
        name=name,
        description=text,
        content=table("Content", properties_type=Byte(properties_type), properties=properties),
        process_units=process_units,
        stats=limits and table("Stats", max=[limits[1]], min=[limits[0]]),
        files=[file] if labels else None,
    )
