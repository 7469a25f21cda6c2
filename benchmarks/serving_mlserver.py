"""A runtime of MLServer for the model, which MLServer loads in its environment."""

from __future__ import annotations

import tensorflow as tf
from mlserver import MLModel
from mlserver.codecs import Base64Codec, NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Model(MLModel):  # type: ignore[misc]
    """A SavedModel whose serving_default takes serialized tf.Examples."""

    async def load(self) -> bool:
        """Load the SavedModel."""
        self._model = tf.saved_model.load(self.settings.parameters.uri)
        self._call = self._model.signatures["serving_default"]
        (self._input,) = self._call.structured_input_signature[1]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Predict a batch."""
        answers = self._call(**{self._input: tf.constant(Base64Codec.decode_input(payload.inputs[0]))})
        outputs = [NumpyCodec.encode_output(name, answer.numpy()) for name, answer in answers.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)
