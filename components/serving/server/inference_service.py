"""The Open Inference Protocol, version 2: what its REST and gRPC APIs share.

The protocol does not know signatures. The parameter `signature_name` of a request selects one. Without it, the names of
the inputs do, as in the REST API of TensorFlow Serving: `serving_default`, or `raw` for columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy.typing as npt
import tensorflow as tf
from tensorflow_serving.apis.model_pb2 import ModelSpec

from components.data.saved_model import RAW
from components.serving.server.errors import RequestError
from components.serving.server.inference_tensors import Tensor, describe, to_arrays
from components.serving.server.model_manager import AVAILABLE, Version
from components.serving.server.saved_model import Arrays, Signature
from components.serving.server.service import Service

SERVER = {"name": "tfx-pipeline", "version": tf.__version__, "extensions": ["binary_tensor_data"]}
"""Metadata of the server. The version is TensorFlow's."""


class InferenceRequest(NamedTuple):
    """A request for an inference.

    Attributes:
      spec: Names of the model and the signature, and the version's number or label; see `create_spec`.
      id: Identifier that the response repeats; "" for none.
      tensors: Input name → tensor.
      outputs: Names of the requested outputs; empty for all.
    """

    spec: ModelSpec
    id: str
    tensors: Mapping[str, Tensor]
    outputs: tuple[str, ...]


class InferenceService:
    """Answers the requests of both APIs."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def is_ready(self) -> bool:
        """Return whether every model has a loaded version, and the server is not stopping."""
        return not self.service.stopping and self.service.manager.is_ready()

    def is_model_ready(self, model: str, version: str) -> bool:
        """Return whether a version is loaded."""
        try:
            self._find(model, version)
        except RequestError:
            return False
        return True

    def describe_model(self, model: str, version: str) -> dict[str, Any]:
        """Return the metadata of a model: the inputs and outputs of `raw` if it has this signature.

        Raises:
          RequestError: If the version is not loaded.
        """
        loaded = [item for item in self.service.manager.status(model) if item.state == AVAILABLE]
        with self._find(model, version) as saved_model:
            signature = saved_model.signature(RAW if RAW in saved_model.signatures else "")
        return {
            "name": model,
            "versions": [str(item.number) for item in loaded],
            "platform": "tensorflow_savedmodel",
            "inputs": describe(signature.inputs),
            "outputs": describe(signature.outputs),
        }

    async def infer(self, request: InferenceRequest, api: str) -> tuple[str, dict[str, npt.NDArray[Any]]]:
        """Run a signature.

        Args:
          request: The request.
          api: REST or GRPC.

        Returns:
          The number of the version that answered, and the requested outputs, name → array.

        Raises:
          RequestError: If the request is not valid, or the requested version is not loaded.
        """

        def read(signature: Signature) -> Arrays:
            if unknown := [name for name in request.outputs if name not in signature.outputs]:
                expected = f"expected outputs of {sorted(signature.outputs)}"
                raise signature.error(f"{expected}, received {unknown[0]!r}")
            return to_arrays(request.tensors, signature)

        version, _, outputs = await self.service.run(request.spec, api, read, request.tensors)
        return str(version.number), {name: outputs[name] for name in request.outputs or outputs}

    def _find(self, model: str, version: str) -> Version:
        number = _parse_number(version)
        return self.service.manager.find(model, number, version if number is None else None)


def create_spec(model: str, version: str, signature: str) -> ModelSpec:
    """Create the names by which the model server finds what answers a request.

    Args:
      model: Name of the model.
      version: Number or label of the version; "" for the greatest loaded version.
      signature: Name of the signature; "" selects it by the names of the inputs.

    Raises:
      RequestError: If a name is not valid Unicode.
    """
    number = _parse_number(version)
    version_or_label = {"version_label": version} if number is None else {"version": {"value": number}}
    try:
        return ModelSpec(name=model, signature_name=signature, **version_or_label)
    except ValueError as error:
        raise RequestError(f"expected names of a model, a version and a signature: {error}") from error


def _parse_number(version: str) -> int | None:
    # TensorFlow Serving's versions are 64-bit integers. Another text is a label, such as stable.
    return int(version) if version.isdecimal() and len(version) <= 18 else None
